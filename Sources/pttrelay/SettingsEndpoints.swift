// What the endpoints of [api], [push] and [web] are started with: tokens and certificates, from files or the relay's own.
import Cryptography
import Files
import Glibc
import Logging
import RelayHTTP
import RelayServer
import RelayWeb
import Settings

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

extension PushSettings {
    /// What the endpoint is started with.
    func endpoint(_ state: RelayState, logger: Logger) throws -> PushEndpointConfiguration {
        if clients.isEmpty {
            logger.warning(
                "nobody may push: [push] has no client; 'pttrelay push-certificate TOPIC' makes a certificate for one")
        }
        let (certificate, key) = try certificate(state, logger: logger)
        if files == nil {
            logger.notice(
                """
                pushes come in under a certificate that the relay made; so that clients trust it: \
                pttrelay push-server-certificate > relay.pem, then curl --cacert relay.pem
                """)
        }
        return PushEndpointConfiguration(
            listenAddress: listen.address, listenPort: listen.port, certificatePEM: certificate, privateKeyPEM: key,
            clients: clients)
    }

    /// The server's certificate with those after it, and its key, in PEM: from the files that are named, or the relay's own.
    func certificate(_ state: RelayState, logger: Logger) throws -> (String, String) {
        try Self.certificate(files, listen, state, logger)
    }

    static func certificate(
        _ files: (certificate: String, key: String)?, _ listen: ListenAddress, _ state: RelayState, _ logger: Logger
    ) throws -> (String, String) {
        if let files { return try contents(files) }
        let identity = try state.serverIdentity(try serverNames(state, listen), logger: logger)
        return (identity.certificatePEM, identity.privateKeyPEM)
    }

    /// The texts of a certificate's file and its key's.
    static func contents(_ files: (certificate: String, key: String)) throws(SettingsError) -> (String, String) {
        (
            String(decoding: try SettingsFile.contents(of: files.certificate), as: UTF8.self),
            String(decoding: try SettingsFile.contents(of: files.key), as: UTF8.self)
        )
    }

    /// The names and addresses by which a client on this machine or in its network may know it.
    private static func serverNames(_ state: RelayState, _ listen: ListenAddress) throws -> [Identity.ServerName] {
        let own = ListenAddress(address: "::", port: 0).invitationHost
        var names: [Identity.ServerName] = []
        for text in [try state.host(), listen.invitationHost, own, "localhost", "127.0.0.1", "::1"] {
            guard let text else { continue }
            let name: Identity.ServerName = addressBytes(text).map { .address($0) } ?? .host(text)
            if !names.contains(name) { names.append(name) }
        }
        return names
    }

    /// A numeric IP address in network order; nil for a name.
    private static func addressBytes(_ text: String) -> [UInt8]? {
        for (family, count) in [(AF_INET, 4), (AF_INET6, 16)] {
            var bytes = [UInt8](repeating: 0, count: count)
            if inet_pton(family, text, &bytes) == 1 { return bytes }
        }
        return nil
    }
}

extension WebSettings {
    /// What the endpoint is started with.
    func endpoint(_ state: RelayState, _ limits: RelayLimits, logger: Logger) throws -> WebEndpointConfiguration {
        var result = WebEndpointConfiguration(
            listenAddress: listen.address, listenPort: listen.port, certificate: try certificate(state, logger: logger))
        result.origins = Set(origins)
        result.proxies = Set(proxies)
        result.limits = WebEndpointLimits(limits)
        if hasTLS, files == nil {
            logger.notice(
                """
                links over TLS come in under a certificate that the relay made: pttd accepts it, browsers do not; \
                for browsers, name a certificate in [web]
                """)
        }
        return result
    }

    /// The certificate with those after it, and its key, in PEM: from the files that are named, or the relay's own; nil without TLS.
    func certificate(_ state: RelayState, logger: Logger) throws -> (pem: String, privateKeyPEM: String)? {
        hasTLS ? try PushSettings.certificate(files, listen, state, logger) : nil
    }
}
