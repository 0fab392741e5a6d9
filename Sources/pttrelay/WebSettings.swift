// [web] of pttrelay.toml: the endpoint for links over TLS and for the page.
import RelayProtocol
import RelayServer
import RelayWeb
import Settings

/// The web endpoint as the configuration has it.
struct WebSettings {
    /// The TCP address and port.
    var listen = ListenAddress(address: "::", port: WebEndpointConfiguration.defaultPort)
    /// The files of the certificate and key in PEM; nil: the relay makes its own.
    var files: (certificate: String, key: String)?
    /// Whether it has TLS; without, a reverse proxy in front of it has.
    var hasTLS = true
    /// Where clients reach it, in links; nil: the port of `listen` at the relay's own name.
    var place: WebPlace?
    /// Origins of other pages that may open a link.
    var origins: [String] = []
    /// Addresses of reverse proxies.
    var proxies: [String] = []

    static func read(_ table: SettingsTable) -> WebSettings {
        var result = WebSettings()
        result.listen = (table.optional("listen", RelaySettings.listenAddress) ?? nil) ?? result.listen
        result.hasTLS = table.value("tls", .boolean, default: true)
        result.files = PushSettings.files(table)
        if !result.hasTLS, result.files != nil {
            table.problem("tls", "is false, and there is a certificate", "remove one of the two")
        }
        result.place = table.optional("public", place) ?? nil
        result.origins = table.value("origins", .array(of: origin, count: 0...64), default: []).compactMap(\.self)
        result.proxies = table.value("proxies", .array(of: address, count: 0...64), default: []).compactMap(\.self)
        return result
    }

    /// What changes only with a restart: everything but the certificate.
    var untilRestart: [String] {
        [listen.text, "\(hasTLS)", place?.text ?? ""] + origins.sorted() + ["proxies"] + proxies.sorted()
    }

    /// Where clients reach it when it listens on `port`.
    func place(port: UInt16) -> WebPlace? { place ?? WebPlace(port: port) }

    /// Where other relays of a cluster reach it, if they reach this one at `host`; nil: they do not.
    func address(at host: String) -> WebLinkAddress? {
        guard !listen.isLoopback, listen.port > 0 else { return nil }
        return RelayPlace(host: host, port: listen.port).map { WebLinkAddress($0, hasTLS: hasTLS) }
    }

    private static var place: SettingType<WebPlace?> {
        SettingType<String>.string(lengthMax: WebPlace.byteCountMaximum).read(
            orSay: "is neither a port nor a name with a port",
            "write where clients reach it, such as \"443\" or \"relay.example:443\""
        ) { WebPlace($0) }
    }

    private static var origin: SettingType<String?> {
        SettingType<String>.string(lengthMax: 512).read(
            orSay: "is not an origin", "write one as browsers name it, such as \"https://console.example\""
        ) { text in
            let rest = text.drop { $0 != ":" }.dropFirst(3)
            let isOrigin =
                (text.hasPrefix("https://") || text.hasPrefix("http://")) && !rest.isEmpty && !rest.contains("/")
            return isOrigin ? text : nil
        }
    }

    private static var address: SettingType<String?> {
        SettingType<String>.string(lengthMax: 64).read(
            orSay: "is not a numeric address", "write one such as \"127.0.0.1\""
        ) { ListenAddress(argument: $0.contains(":") ? "[\($0)]:1" : "\($0):1") == nil ? nil : $0 }
    }
}
