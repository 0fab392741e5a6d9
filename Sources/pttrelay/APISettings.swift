// The table [api] of pttrelay.toml.
import RelayHTTP
import Settings

/// Where the API is, and where its token comes from.
struct APISettings: Equatable {
    var listen: ListenAddress
    /// A file with the token; nil: the relay makes one in its state directory.
    var tokenFile: String?

    /// Only for this machine: there is no TLS.
    static let standardListen = ListenAddress(address: "127.0.0.1", port: PlainHTTPConfiguration.apiPort)

    static func read(_ table: SettingsTable) -> APISettings {
        APISettings(
            listen: (table.optional("listen", RelaySettings.listenAddress) ?? nil) ?? standardListen,
            tokenFile: table.optional("token-file", .string))
    }
}
