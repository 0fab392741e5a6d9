// Between the values of org.pttd and what an app sees: pushes, routes and errors.
import DBus
import PTTBus
import PushToTalkCore

/// A push as it came: JSON text, which is parsed where it is used, for its values are not `Sendable`.
struct IncomingPush: Sendable {
    let channelUUID: UUID
    private let json: String

    /// - Throws: `DBusErrorReply`, when the text is no JSON object, or too long.
    init(channelUUID: UUID, json: String) throws {
        self.channelUUID = channelUUID
        self.json = json
        guard json.utf8.count <= PTTBusLimits.payloadBytes, payload != nil else {
            throw DBusErrorReply.invalidArguments(
                "the payload is not a JSON object of at most \(PTTBusLimits.payloadBytes) bytes")
        }
    }

    /// The push's JSON object.
    var payload: [String: Any]? {
        try? JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
    }
}

/// The `options` that carry an image.
func imageOptions(_ image: PTImage?) -> [String: DBusValue] {
    image.map { ["Image": $0.busValue] } ?? [:]
}

/// A name as it may travel: D-Bus has no NUL.
func busName(_ name: String) -> DBusValue { .string(name.filter { $0 != "\0" }) }

extension PTAudioSession.Route {
    /// As pttd tells it; what it leaves out is that of a machine with one sound device.
    init(_ session: AudioSessionDescription) {
        let usual = PTAudioSession.defaultRoute
        self.init(
            inputDevice: session.inputDevice.isEmpty ? usual.inputDevice : session.inputDevice,
            outputDevice: session.outputDevice.isEmpty ? usual.outputDevice : session.outputDevice,
            sampleRate: session.sampleRateHertz == 0 ? usual.sampleRate : Int(session.sampleRateHertz))
    }
}

extension PTChannelError {
    /// What an answer of `org.pttd`, or its absence, means to an app.
    init(_ error: DBusError) {
        guard case .remote(let name, let message) = error else {
            self.init(.unknown, explanation: "pttd cannot be reached or does not answer: \(error)")
            return
        }
        if let known = PTChannelError(busName: name, message: message) {
            self = known
            return
        }
        switch name.split(separator: ".").last {
        case "UnknownObject", "UnknownInterface": self.init(.channelNotFound)
        // A channel of another app is none of this app's channels.
        case "AccessDenied": self.init(.channelNotFound, explanation: message)
        case "ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected":
            self.init(.unknown, explanation: "pttd is not running; it restores the channel when it runs again")
        default: self.init(.unknown, explanation: "pttd refused: \(error)")
        }
    }
}

extension DelegateStateMachine.Failure {
    /// Why an answer of `org.pttd`, or its absence, is a failure. What pttd's rules refuse has an error name of its own.
    init(_ error: DBusError) {
        self.init(
            error: PTChannelError(error), isCalledBack: error.remoteName?.hasPrefix(PTTBus.errorPrefix) ?? false)
    }
}

extension PTInstantiationError {
    /// Why registering failed.
    init(registering error: DBusError) {
        guard case .remote(let name, let message) = error else {
            self.init(.invalidPlatform, explanation: "pttd does not answer (\(error)); look at its log, or restart it")
            return
        }
        if let known = PTInstantiationError(busName: name, message: message) {
            self = known
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
            self.init(.invalidPlatform, explanation: "pttd has just stopped; try again when it runs")
        default: self.init(.unknown, explanation: "pttd refused: \(error)")
        }
    }
}
