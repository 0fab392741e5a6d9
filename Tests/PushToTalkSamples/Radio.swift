// The samples of docs/app-developers.md: this file is their source, and the page is checked against it. They import what an app imports.

// snippet: delegates
import PushToTalk

final class Radio: NSObject, PTChannelManagerDelegate, PTChannelRestorationDelegate {
    let backend: any RadioBackend
    var channelManager: PTChannelManager!
    var channelUUID = UUID()
    var channelDescriptor = PTChannelDescriptor(name: "", image: nil)

    init(backend: any RadioBackend) {
        self.backend = backend
    }
    // end snippet

    // snippet: channel manager
    func setUpChannelManager() async throws {
        channelManager = try await PTChannelManager.channelManager(delegate: self, restorationDelegate: self)
    }
    // end snippet

    // snippet: join
    func joinChannel(channelUUID: UUID) {
        self.channelUUID = channelUUID
        channelDescriptor = PTChannelDescriptor(name: "Night shift", image: PTImage(named: "audio-radio"))
        backend.remember(channelUUID, channelDescriptor)
        channelManager.requestJoinChannel(channelUUID: channelUUID, descriptor: channelDescriptor)
    }

    func leaveChannel() {
        channelManager.leaveChannel(channelUUID: channelUUID)
    }
    // end snippet

    // snippet: joined
    func channelManager(
        _ channelManager: PTChannelManager,
        didJoinChannel channelUUID: UUID,
        reason: PTChannelJoinReason
    ) {
        // After a restart the reason is .channelRestoration, and nobody asked for the channel.
        self.channelUUID = channelUUID
        backend.show("joined")
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        receivedEphemeralPushToken pushToken: Data
    ) {
        // Of any length, and another one after each join.
        backend.send(pushToken: pushToken, for: channelUUID)
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        failedToJoinChannel channelUUID: UUID,
        error: Error
    ) {
        let error = error as NSError
        switch error.code {
        case PTChannelError.channelLimitReached.rawValue:
            backend.show("another channel is active: leave it first")
        default:
            backend.show(error.localizedDescription)
        }
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        didLeaveChannel channelUUID: UUID,
        reason: PTChannelLeaveReason
    ) {
        backend.show(reason == .userRequest ? "you left" : "left")
    }
    // end snippet

    // snippet: restore
    func channelDescriptor(restoredChannelUUID channelUUID: UUID) -> PTChannelDescriptor {
        backend.rememberedDescriptor(of: channelUUID) ?? PTChannelDescriptor(name: "Radio", image: nil)
    }
    // end snippet

    // snippet: settings
    func talkBothWays() async throws {
        try await channelManager.setTransmissionMode(.fullDuplex, channelUUID: channelUUID)
    }

    func listenOnly() async throws {
        try await channelManager.setTransmissionMode(.listenOnly, channelUUID: channelUUID)
    }

    func connectionWasLost() async throws {
        try await channelManager.setServiceStatus(.connecting, channelUUID: channelUUID)
    }

    func connectionIsBack() async throws {
        try await channelManager.setServiceStatus(.ready, channelUUID: channelUUID)
    }

    func showConversation(with name: String, picture: Data) async throws {
        let descriptor = PTChannelDescriptor(name: name, image: PTImage(data: picture))
        try await channelManager.setChannelDescriptor(descriptor, channelUUID: channelUUID)
    }

    func leaveButtonsToTheMusicPlayer() async throws {
        try await channelManager.setAccessoryButtonEventsEnabled(false, channelUUID: channelUUID)
    }
    // end snippet

    // snippet: transmit
    func startTransmitting() {
        channelManager.requestBeginTransmitting(channelUUID: channelUUID)
    }

    func stopTransmitting() {
        channelManager.stopTransmitting(channelUUID: channelUUID)
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        channelUUID: UUID,
        didBeginTransmittingFrom source: PTChannelTransmitRequestSource
    ) {
        // Time to connect to the server. The microphone is not this program's yet.
        isTransmitting = true
        backend.announceSpeech()
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        channelUUID: UUID,
        didEndTransmittingFrom source: PTChannelTransmitRequestSource
    ) {
        isTransmitting = false
        backend.endSpeech()
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        failedToBeginTransmittingInChannel channelUUID: UUID,
        error: Error
    ) {
        let error = error as NSError
        switch error.code {
        case PTChannelError.callActive.rawValue:
            backend.show("you are on the phone")
        default:
            backend.show(error.localizedDescription)
        }
    }

    func channelManager(
        _ channelManager: PTChannelManager,
        failedToStopTransmittingInChannel channelUUID: UUID,
        error: Error
    ) {
        let error = error as NSError
        switch error.code {
        case PTChannelError.transmissionNotFound.rawValue:
            backend.show("nothing to stop")
        default:
            backend.show(error.localizedDescription)
        }
    }
    // end snippet

    // snippet: audio session
    var isTransmitting = false

    func channelManager(_ channelManager: PTChannelManager, didActivate audioSession: PTAudioSession) {
        let route = audioSession.currentRoute
        if isTransmitting {
            backend.record(from: route.inputDevice)
        } else {
            backend.play(on: route.outputDevice)
        }
    }

    func channelManager(_ channelManager: PTChannelManager, didDeactivate audioSession: PTAudioSession) {
        backend.stopSound()
    }
    // end snippet

    // snippet: interruptions
    func followAudioSession() async {
        for await interruption in PTAudioSession.sharedInstance().interruptions {
            switch interruption {
            case .began(let reason): backend.show("interrupted: \(reason)")
            case .ended: backend.show("ready")
            }
        }
    }
    // end snippet

    // snippet: push
    func incomingPushResult(
        channelManager: PTChannelManager,
        channelUUID: UUID,
        pushPayload: [String: Any]
    ) -> PTPushResult {
        guard let activeSpeaker = pushPayload["activeSpeaker"] as? String else {
            // A push without a speaker: this server says so that the conversation is over.
            return .leaveChannel
        }
        if isTransmitting {
            // In half duplex somebody else can only be heard once this device is silent. Both happen in one go.
            channelManager.stopTransmitting(channelUUID: channelUUID)
        }
        let participant = PTParticipant(name: activeSpeaker, image: backend.picture(of: activeSpeaker))
        return .activeRemoteParticipant(participant)
    }

    func stopReceivingAudio() {
        channelManager.setActiveRemoteParticipant(nil, channelUUID: channelUUID)
    }

    func showPicture(_ picture: Data, of speaker: String) async throws {
        let participant = PTParticipant(name: speaker, image: PTImage(data: picture))
        try await channelManager.setActiveRemoteParticipant(participant, channelUUID: channelUUID)
    }
    // end snippet

    // snippet: service update
    func incomingServiceUpdatePush(
        channelManager: PTChannelManager,
        channelUUID: UUID,
        pushPayload: [String: Any],
        isHighPriority: Bool,
        remainingHighPriorityBudget: Int,
        completion: @escaping @Sendable () -> Void
    ) {
        backend.refresh(done: completion)
    }
    // end snippet
}

// snippet: backend
/// What is the app's own: its server, its sound, its display.
protocol RadioBackend {
    func remember(_ channelUUID: UUID, _ descriptor: PTChannelDescriptor)
    func rememberedDescriptor(of channelUUID: UUID) -> PTChannelDescriptor?
    func send(pushToken: Data, for channelUUID: UUID)
    func announceSpeech()
    func endSpeech()
    func record(from device: String)
    func play(on device: String)
    func stopSound()
    func picture(of speaker: String) -> PTImage?
    func refresh(done: @escaping @Sendable () -> Void)
    func show(_ text: String)
}
// end snippet

// snippet: main actor
/// A user interface's own delegate: the main queue calls it, so it may be isolated to the main actor.
@MainActor final class Window: @preconcurrency PTChannelManagerDelegate, PTChannelRestorationDelegate {
    // end snippet
    private(set) var lines: [String] = []

    // snippet: main actor launch
    func launch() async throws -> PTChannelManager {
        PTChannelManager.applicationName = "org.example.Radio"
        return try await PTChannelManager.channelManager(delegate: self, restorationDelegate: self)
    }
    // end snippet

    func channelManager(_: PTChannelManager, didJoinChannel: UUID, reason: PTChannelJoinReason) {
        lines.append("joined")
    }
    func channelManager(_: PTChannelManager, didLeaveChannel: UUID, reason: PTChannelLeaveReason) {
        lines.append("left")
    }
    func channelManager(
        _: PTChannelManager, channelUUID: UUID, didBeginTransmittingFrom: PTChannelTransmitRequestSource
    ) { lines.append("began") }
    func channelManager(
        _: PTChannelManager, channelUUID: UUID, didEndTransmittingFrom: PTChannelTransmitRequestSource
    ) { lines.append("ended") }
    func channelManager(_: PTChannelManager, receivedEphemeralPushToken: Data) { lines.append("token") }
    func incomingPushResult(channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any])
        -> PTPushResult
    { .leaveChannel }
    func channelManager(_: PTChannelManager, didActivate: PTAudioSession) { lines.append("active") }
    func channelManager(_: PTChannelManager, didDeactivate: PTAudioSession) { lines.append("inactive") }
    nonisolated func channelDescriptor(restoredChannelUUID: UUID) -> PTChannelDescriptor {
        PTChannelDescriptor(name: "Restored", image: nil)
    }

    // snippet: completion handlers
    nonisolated func updateEverything(_ channelManager: PTChannelManager, _ channelUUID: UUID) {
        channelManager.setServiceStatus(.ready, channelUUID: channelUUID) { error in
            if let error { print("the status was not taken: \(error.localizedDescription)") }
        }
        channelManager.setTransmissionMode(.halfDuplex, channelUUID: channelUUID)
    }
    // end snippet
}

// snippet: own queue
/// A program whose main thread belongs to another event loop gives the delegates a queue of their own.
func launchWithoutMainQueue(_ delegate: Radio, _ ready: @escaping @Sendable (PTChannelManager) -> Void) {
    PTChannelManager.delegateQueue = DispatchQueue(label: "org.example.Radio.push-to-talk")
    PTChannelManager.channelManager(delegate: delegate, restorationDelegate: delegate) { manager, error in
        if let manager { ready(manager) } else { print(error?.localizedDescription ?? "") }
    }
}
// end snippet
