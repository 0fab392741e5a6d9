// [push] of pttrelay.toml: the endpoint for pushes, and the clients that may send them.
import Cryptography
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
