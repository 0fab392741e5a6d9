// The table [api] of pttrelay.toml, with the token and the endpoint that come of it.
import Cryptography
import Files
import Logging
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

extension APISettings {
    /// The token, made if there is none and no file is named.
    ///
    /// - Throws: `RelayStateError`, `FileError` for a file that is named and has none.
    func token(_ state: RelayState, logger: Logger) throws -> OperatorToken {
        guard let tokenFile else { return state.token(for: .api, logger) }
        return try Self.token(in: tokenFile)
    }

    /// The token in a file.
    static func token(in path: String) throws -> OperatorToken {
        let bytes = try RegularFile.read(path, byteCountMax: 4_096)
        guard let token = OperatorToken(String(decoding: bytes, as: UTF8.self)) else {
            throw RelayStateError(
                description:
                    "\(path) has no token; write 32 random bytes in Base64url, such as of "
                    + "'openssl rand 32 | basenc --base64url | tr -d ='")
        }
        return token
    }

    /// What the endpoint is started with.
    func configuration(_ state: RelayState, _ logger: Logger) throws -> PlainHTTPConfiguration {
        listen.warnOfNoTLS("the API", logger)
        return PlainHTTPConfiguration(
            listenAddress: listen.address, listenPort: listen.port, token: try token(state, logger: logger))
    }
}
