// [push] of pttrelay.toml: the endpoint for pushes, its certificate, and the clients that may send them.
import Cryptography
import Glibc
import Logging
import RelayHTTP
import RelayProtocol
import Settings

/// The endpoint for pushes as the configuration has it.
struct PushSettings {
    /// The TCP address and port.
    var listen = ListenAddress(address: "::", port: PushEndpointConfiguration.defaultPort)
    /// The files of the server's certificate and key in PEM; nil: the relay makes its own.
    var files: (certificate: String, key: String)?
    /// Who may push what.
    var clients: [PushClient] = []

    /// The most clients.
    static let clientsMaximum = 256
    /// The most topics of one client.
    static let topicsMaximum = 64

    static func read(_ table: SettingsTable) -> PushSettings {
        var result = PushSettings()
        result.listen = (table.optional("listen", RelaySettings.listenAddress) ?? nil) ?? result.listen
        result.files = files(table)
        result.clients = table.tables("client", countMax: clientsMaximum).compactMap { client in
            // For people: whose certificate it is.
            _ = client.optional("name", .string)
            let pin = client.required("pin", pin)
            let topics = client.required("topics", .array(of: topic, count: 1...topicsMaximum)).compactMap(\.self)
            // What cannot be read was reported.
            return pin.flatMap { PushClient(pin: $0, topics: topics) }
        }
        return result
    }

    /// The files of a server's certificate and its key, if they are named; one of them alone is reported.
    static func files(_ table: SettingsTable) -> (certificate: String, key: String)? {
        switch (table.optional("certificate", .string), table.optional("key", .string)) {
        case (let certificate?, let key?): return (certificate, key)
        case (nil, nil): break
        case (.some, nil):
            table.problem("certificate", "has no key", "name the file of its key as 'key', or remove 'certificate'")
        case (nil, .some):
            table.problem(
                "key", "has no certificate", "name the file of its certificate as 'certificate', or remove 'key'")
        }
        return nil
    }

    private static var pin: SettingType<PublicKeyPin?> {
        SettingType<String>.string.read(
            orSay: "is not the pin of a certificate", "copy what 'pttrelay push-certificate' prints"
        ) { Base64URL.decode($0).flatMap { PublicKeyPin($0) } }
    }

    private static var topic: SettingType<PushTopic?> {
        SettingType<String>.string.map(placeholder: nil) { text throws(SettingRefusal) in
            do throws(TopicRefusal) {
                return try PushTopic(written: text)
            } catch {
                throw SettingRefusal(error.problem, error.advice)
            }
        }
    }
}

/// What is wrong with a topic that somebody wrote.
struct TopicRefusal: Error {
    let problem: String
    let advice: String
}

extension PushTopic {
    /// The topic as written in a configuration or on a command line.
    init(written text: String) throws(TopicRefusal) {
        guard let topic = PushTopic(text) else {
            throw TopicRefusal(
                problem: "\"\(text)\" is not a topic", advice: "write 1 to 255 letters, digits, dots and dashes")
        }
        guard topic.application != nil else {
            throw TopicRefusal(
                problem: "\"\(text)\" is not a topic of push to talk",
                advice: "write the application's identifier and \(PushTopic.suffix): \"\(text)\(PushTopic.suffix)\"")
        }
        self = topic
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
