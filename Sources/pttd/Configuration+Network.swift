// What pttd.toml and the environment say of the way to relays.
import Glibc
import RelayClient
import Settings
import WebSockets

extension Configuration {
    mutating func readNetwork(_ root: SettingsTable) {
        let table = root.table("relay")
        network.transport = table?.value("transport", Self.transport, default: .automatic) ?? .automatic
        if let named = table?.optional("http-proxy", Self.proxy) { configuredProxy = ProxyPolicy(proxy: named) }
    }

    /// The variables of the environment that say which proxy to use, and for which hosts none.
    static let proxyVariables = ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"]

    /// The ways to relays, with the environment's proxy where the file names none.
    ///
    /// - Parameter ignored: Called with what is wrong in the environment, which is not used then.
    func relayNetwork(ignored: (String) -> Void) -> RelayNetwork {
        var network = network
        if let configuredProxy {
            network.proxy = configuredProxy
            return network
        }
        var found: [String: String] = [:]
        for name in Self.proxyVariables { found[name] = Self.environment(name) }
        do throws(HTTPProxy.Problem) {
            network.proxy = try ProxyPolicy(environment: found)
        } catch {
            ignored("HTTPS_PROXY is not used: \(error)")
        }
        return network
    }

    private static var transport: SettingType<RelayNetwork.Transport> {
        .text(
            lengthMax: 16, placeholder: .automatic, isNot: "a transport",
            "write \"auto\" (QUIC, and TLS where UDP is blocked), \"quic\" or \"tls\""
        ) { RelayNetwork.Transport(rawValue: $0) }
    }

    /// "none" is no proxy, whatever the environment says.
    private static var proxy: SettingType<HTTPProxy?> {
        SettingType<String>.string(lengthMax: HTTPProxy.textMaximum).map(placeholder: nil) {
            text throws(SettingRefusal) in
            guard text != "none" else { return nil }
            do throws(HTTPProxy.Problem) {
                return try HTTPProxy(text)
            } catch .scheme(let scheme) {
                throw SettingRefusal(
                    "a proxy with \"\(scheme)://\" is not supported", "write \"http://HOST:PORT\"")
            } catch {
                // Not the text: it may have a password.
                throw SettingRefusal(
                    "is not the URL of a proxy",
                    "write \"http://HOST:PORT\", \"http://USER:PASSWORD@HOST:PORT\" or \"none\"")
            }
        }
    }
}
