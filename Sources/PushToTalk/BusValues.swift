// Between the values of org.pttd and Apple's types: images, pushes, routes and errors.
import DBus
import PTTBus
import PushToTalkCore

/// A push as it came: JSON text, which is parsed where it is used, for its values are not `Sendable`.
struct IncomingPush: Sendable {
    let channelUUID: UUID
    private let json: String

    /// - Throws: `DBusErrorReply`, when the text is no JSON object.
    init(channelUUID: UUID, json: String) throws {
        self.channelUUID = channelUUID
        self.json = json
        guard payload != nil else { throw DBusErrorReply.invalidArguments("the payload is not a JSON object") }
    }

    /// The push's JSON object.
    var payload: [String: Any]? {
        try? JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
    }
}

extension PTImage {
    /// As `org.pttd` carries it.
    var busValue: DBusValue {
        switch content {
        case .png(let bytes), .jpeg(let bytes): .bytes(bytes)
        case .themedIcon(let name): .string(name)
        }
    }
}

extension PTPushResult {
    /// As `org.pttd.Delegate1.IncomingPush` answers.
    var busValue: DBusValue {
        switch self {
        case .leaveChannel: .properties(["Action": .string("leaveChannel")])
        case .activeRemoteParticipant(let participant):
            .properties(
                imageOptions(participant.image).merging([
                    "Action": .string("activeRemoteParticipant"), "Name": .string(participant.name),
                ]) { _, new in new })
        }
    }
}

/// The `options` that carry an image.
func imageOptions(_ image: PTImage?) -> [String: DBusValue] {
    image.map { ["Image": $0.busValue] } ?? [:]
}

extension PTAudioSession.Route {
    /// From the keys of `org.pttd.Delegate1.DidActivateAudioSession`; what is missing stays as it is in `current`.
    init(_ session: [String: DBusValue], current: Self) {
        self.init(
            inputDevice: session["InputDevice"]?.stringValue ?? current.inputDevice,
            outputDevice: session["OutputDevice"]?.stringValue ?? current.outputDevice,
            sampleRate: session["SampleRate"]?.integerValue.map(Int.init) ?? current.sampleRate)
    }
}

extension PTTransmissionMode {
    /// As `org.pttd` spells it.
    var busName: String { "\(self)" }
}

extension PTServiceStatus {
    /// As `org.pttd` spells it.
    var busName: String { "\(self)" }
}

extension PTChannelError {
    /// What an answer of `org.pttd`, or its absence, means to an app.
    init(_ error: DBusError) {
        guard case .remote(let name, let message) = error else {
            self.init(.unknown, explanation: "pttd does not answer (\(error)); it restores the channel when it is back")
            return
        }
        if let code = Code.allCases.first(where: { PTTBus.errorPrefix + PTTBus.errorName($0) == name }) {
            self.init(code, explanation: message.isEmpty ? nil : message)
            return
        }
        switch name.split(separator: ".").last {
        case "UnknownObject", "UnknownInterface": self.init(.channelNotFound)
        case "AccessDenied":
            // A channel of another app is none of this app's channels.
            self.init(.channelNotFound, explanation: message)
        case "ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected":
            self.init(.unknown, explanation: "pttd is not running; it restores the channel when it is back")
        default: self.init(.unknown, explanation: "pttd refused: \(error)")
        }
    }
}

extension PTInstantiationError {
    /// Why registering failed.
    init(registering error: DBusError) {
        guard case .remote(let name, let message) = error else {
            self.init(.invalidPlatform, explanation: "pttd does not answer (\(error)); look at its log, or restart it")
            return
        }
        let codes = Code.allCases.first { code in
            let text = "\(code)"
            return name == PTTBus.errorPrefix + text.prefix(1).uppercased() + text.dropFirst()
        }
        if let code = codes {
            self.init(code, explanation: message)
            return
        }
        switch name.split(separator: ".").last {
        case "AccessDenied":
            self.init(
                .missingEntitlement,
                explanation: "the bus does not let this user talk to pttd (\(message)); "
                    + "join the group: 'sudo adduser $USER pttd', and log in again")
        case "UnknownMethod", "UnknownInterface":
            self.init(.invalidPlatform, explanation: "pttd is older than this library; update it (\(message))")
        case "ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected":
            self.init(.invalidPlatform, explanation: "pttd ended just now; try again when it runs")
        default: self.init(.unknown, explanation: "pttd refused: \(error)")
        }
    }
}
