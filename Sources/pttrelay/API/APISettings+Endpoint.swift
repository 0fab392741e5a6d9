// The token and the endpoint that come of the table [api].
import Cryptography
import Files
import Logging
import RelayHTTP

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
