// A whole app over PushToTalk, for tests: D-Bus starts it for a push, it joins when told to, and it notes in a file what its delegates are told.
import ArgumentParser
import PushToTalk
import Synchronization

/// Appends lines to the record, whole ones.
private final class Record: Sendable {
    private let file: Mutex<FileHandle>

    init(_ path: String) throws {
        if !FileManager.default.fileExists(atPath: path) {
            _ = FileManager.default.createFile(atPath: path, contents: nil)
        }
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.seekToEnd()
        file = Mutex(handle)
    }

    func note(_ text: String) {
        file.withLock { try? $0.write(contentsOf: Data((text + "\n").utf8)) }
    }
}

/// Answers pushes as the article's sample does: a speaker is heard for a while, no speaker ends the channel.
private final class App: PTChannelManagerDelegate, PTChannelRestorationDelegate, Sendable {
    private let record: Record
    private let listening: Duration

    init(_ record: Record, listening: Duration) {
        self.record = record
        self.listening = listening
    }

    func channelManager(
        _ channelManager: PTChannelManager, didJoinChannel channelUUID: UUID, reason: PTChannelJoinReason
    ) { record.note("didJoinChannel \(reason) \(channelUUID.uuidString.lowercased())") }

    func channelManager(
        _ channelManager: PTChannelManager, didLeaveChannel channelUUID: UUID, reason: PTChannelLeaveReason
    ) { record.note("didLeaveChannel \(reason)") }

    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didBeginTransmittingFrom source: PTChannelTransmitRequestSource
    ) { record.note("didBeginTransmitting \(source)") }

    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didEndTransmittingFrom source: PTChannelTransmitRequestSource
    ) { record.note("didEndTransmitting \(source)") }

    func channelManager(_ channelManager: PTChannelManager, receivedEphemeralPushToken pushToken: Data) {
        record.note("receivedEphemeralPushToken \(pushToken.map { String(format: "%02x", $0) }.joined())")
    }

    func incomingPushResult(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any]
    ) -> PTPushResult {
        guard let speaker = pushPayload["activeSpeaker"] as? String else {
            record.note("incomingPushResult")
            return .leaveChannel
        }
        record.note("incomingPushResult \(speaker)")
        let listening = listening
        Task {
            try await Task.sleep(for: listening)
            try await channelManager.setActiveRemoteParticipant(nil, channelUUID: channelUUID)
        }
        return .activeRemoteParticipant(PTParticipant(name: speaker, image: nil))
    }

    func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int
    ) async { record.note("incomingServiceUpdatePush \(isHighPriority) \(remainingHighPriorityBudget)") }

    func channelManager(_ channelManager: PTChannelManager, didActivate audioSession: PTAudioSession) {
        record.note("didActivate \(audioSession.currentRoute.inputDevice) \(audioSession.currentRoute.outputDevice)")
    }

    func channelManager(_ channelManager: PTChannelManager, didDeactivate audioSession: PTAudioSession) {
        record.note("didDeactivate")
    }

    func channelManager(
        _ channelManager: PTChannelManager, failedToJoinChannel channelUUID: UUID, error: any Error
    ) { record.note("failedToJoinChannel \(error)") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToLeaveChannel channelUUID: UUID, error: any Error
    ) { record.note("failedToLeaveChannel \(error)") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToBeginTransmittingInChannel channelUUID: UUID, error: any Error
    ) { record.note("failedToBeginTransmitting \(error)") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToStopTransmittingInChannel channelUUID: UUID, error: any Error
    ) { record.note("failedToStopTransmitting \(error)") }

    func channelDescriptor(restoredChannelUUID channelUUID: UUID) -> PTChannelDescriptor {
        record.note("channelDescriptor")
        return PTChannelDescriptor(name: "Restored", image: nil)
    }
}

/// The command line.
@main
struct PushToTalkApp: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "An app over PushToTalk, which notes in a file what its delegates are told.")

    @Option(help: "The app's bus name, by which D-Bus can start it.")
    var name: String?

    @Option(help: "The file to append to, a line for each callback.")
    var record: String

    @Option(help: "The UUID of a channel to join.")
    var join: String?

    @Option(help: "The invitation to the channel's relay, over which pushes come.")
    var invitation: String?

    @Flag(help: "Have pttd record and play.")
    var pttdMedia = false

    @Option(help: "How many milliseconds a pushed speaker is heard.")
    var listen = 500

    @Option(help: "End after that many seconds; otherwise never.")
    var seconds: Int?

    func run() async throws {
        let record = try Record(record)
        PTChannelManager.applicationName = name
        let app = App(record, listening: .milliseconds(listen))
        let manager: PTChannelManager
        do {
            manager = try await PTChannelManager.channelManager(delegate: app, restorationDelegate: app)
        } catch {
            record.note("no channel manager: \(error)")
            throw error
        }
        record.note("ready \(manager.activeChannelUUID.map { $0.uuidString.lowercased() } ?? "-")")
        if let join {
            guard let uuid = UUID(uuidString: join) else { throw ValidationError("'\(join)' is not a UUID") }
            let descriptor = PTChannelDescriptor(name: "App", image: nil)
            if let invitation {
                manager.requestJoinChannel(
                    channelUUID: uuid, descriptor: descriptor, invitation: invitation,
                    media: pttdMedia ? .pttd : .application)
            } else {
                manager.requestJoinChannel(channelUUID: uuid, descriptor: descriptor)
            }
        }
        try await Task.sleep(for: .seconds(seconds ?? 1_000_000_000))
    }
}
