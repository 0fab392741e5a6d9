// The endpoint that [push] of pttrelay.toml describes, with its certificate.
import Cryptography
import Glibc
import Logging
import RelayHTTP
import Settings

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
