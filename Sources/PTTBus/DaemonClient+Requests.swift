// The daemon's requests: one method for each of org.pttd's.
import DBus
import FoundationEssentials
import PushToTalkCore

/// Requests about a channel name it by its UUID; nil: the active one. They fail with `DaemonClientError.bus`, whose `channelError`
/// is what the daemon answered, or with `.notRunning`.
extension DaemonClient {
    // MARK: Talking

    /// Presses the talk key. It is held until `stopTransmitting`, or until this client leaves the bus; returns when the microphone
    /// records, or when the press waits for the floor (`ChannelProperties.queuePosition`).
    ///
    /// When it throws, nothing is held.
    public func beginTransmitting(_ channel: UUID? = nil) async throws(DaemonClientError) {
        do throws(DaemonClientError) {
            try await callChannel(channel, "BeginTransmitting")
        } catch {
            // A daemon that is late may have taken the press all the same, and nobody would ever let go.
            if case .bus(.timedOut) = error { Task { try? await stopTransmitting(channel) } }
            throw error
        }
    }

    /// Presses the talk key without waiting; what is asked for after this is asked for after the press.
    ///
    /// - Parameter answer: Called once on the loop: with nil as soon as `beginTransmitting` returns, or with why not.
    public func press(answer: @escaping @Sendable (DaemonClientError?) -> Void) {
        Task {
            do throws(DaemonClientError) {
                try await beginTransmitting()
                answer(nil)
            } catch {
                answer(error)
            }
        }
    }

    /// Lets go of the talk key.
    public func stopTransmitting(_ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "StopTransmitting")
    }

    /// Begins a transmission as the program that joined does (`requestBeginTransmitting`). It ends when this client leaves the bus.
    public func requestBeginTransmitting(_ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "RequestBeginTransmitting")
    }

    /// Ends the transmission with the rights of the program that joined, regardless of who began it.
    public func requestStopTransmitting(_ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "RequestStopTransmitting")
    }

    /// Plays the last message of somebody else again.
    public func replayLast(_ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "ReplayLast")
    }

    /// The messages that the relay keeps of the channel, the one that began last first.
    public func keptMessages(_ channel: UUID? = nil) async throws(DaemonClientError) -> [KeptMessage] {
        try await callChannel(channel, "ListMessages", [], Self.longTimeout)
            .read(KeptMessage.listCode) { $0.first.flatMap(KeptMessage.list) }
    }

    /// Plays one of them, by its `KeptMessage.id`; returns when it plays.
    public func replayKept(_ id: String, _ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "ReplayMessage", [.string(id)], Self.longTimeout)
    }

    // MARK: Channels

    /// Makes another configured channel the active one.
    ///
    /// - Parameter which: "up", "down", or the channel's name, one of `ManagerProperties.channels`.
    /// - Returns: The channel's UUID.
    @discardableResult
    public func changeChannel(_ which: String) async throws(DaemonClientError) -> UUID {
        try await callManager("ChangeChannel", [.string(which)], Self.longTimeout).channel()
    }

    /// Makes a channel the active one.
    ///
    /// - Parameters:
    ///   - uuid: The channel; nil: that of `link`.
    ///   - name: For people; may be empty with a `link`, which has a name.
    ///   - link: A `ptt://` invitation.
    ///   - media: Whose the sound is; nil: `pttd`'s where a link is known for the channel, else this program's.
    /// - Returns: The channel's UUID.
    @discardableResult
    public func joinChannel(
        _ uuid: UUID?, name: String, image: PTImage? = nil, link: String? = nil, media: ChannelMedia? = nil
    ) async throws(DaemonClientError) -> UUID {
        var options = DelegateAnswer.options(image)
        if let link { options["Link"] = .string(link) }
        if let media { options["Media"] = .string(media.rawValue) }
        return try await callManager(
            "JoinChannel",
            [.string(uuid?.uuidString.lowercased() ?? ""), .string(name), .properties(options)], Self.longTimeout
        ).channel()
    }

    /// Leaves the active channel, which must have this UUID; nil: whichever it is.
    public func leaveChannel(_ uuid: UUID? = nil) async throws(DaemonClientError) {
        guard let uuid else {
            try await callChannel(nil, "Leave")
            return
        }
        try await callManager("LeaveChannel", [.uuid(uuid)])
    }

    /// Shows another name and image.
    public func setDescriptor(_ descriptor: PTChannelDescriptor, _ channel: UUID? = nil) async throws(DaemonClientError)
    {
        try await callChannel(
            channel, "SetDescriptor",
            [.string(descriptor.name), .properties(DelegateAnswer.options(descriptor.image))])
    }

    /// Tells whether the service can be used, of a channel whose media are the program's.
    public func setServiceStatus(_ status: PTServiceStatus, _ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "SetServiceStatus", [.string(status.busName)])
    }

    /// Allows other transmissions than until now.
    public func setTransmissionMode(_ mode: PTTransmissionMode, _ channel: UUID? = nil) async throws(DaemonClientError)
    {
        try await callChannel(channel, "SetTransmissionMode", [.string(mode.busName)])
    }

    /// Tells who is speaking; nil: nobody any more.
    public func setActiveRemoteParticipant(
        _ participant: PTParticipant?, _ channel: UUID? = nil
    ) async throws(DaemonClientError) {
        guard let participant else {
            try await callChannel(channel, "ClearActiveRemoteParticipant")
            return
        }
        try await callChannel(
            channel, "SetActiveRemoteParticipant",
            [.string(participant.name), .properties(DelegateAnswer.options(participant.image))])
    }

    /// Lets buttons of accessories begin and end transmissions, or not.
    public func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, _ channel: UUID? = nil
    ) async throws(DaemonClientError) {
        try await callChannel(channel, "SetAccessoryButtonEventsEnabled", [.boolean(enabled)])
    }

    /// Hands over a push that came another way than by the relay.
    ///
    /// - Parameter payload: A JSON object.
    public func reportPushToTalkMessage(_ payload: String, _ channel: UUID? = nil) async throws(DaemonClientError) {
        try await callChannel(channel, "ReportPushToTalkMessage", [.string(payload)])
    }

    // MARK: Calls

    /// Takes an inhibitor lock: a call is active until the last copy of the descriptor is closed.
    ///
    /// - Parameters:
    ///   - who: The program, for people.
    ///   - why: Why, for people.
    public func inhibit(who: String, why: String) async throws(DaemonClientError) -> DBusDescriptor {
        try await callManager("Inhibit", [.string("call"), .string(who), .string(why)])
            .read("h") { $0.first?.descriptorValue }
    }

    /// The inhibitor locks that are held.
    public func inhibitors() async throws(DaemonClientError) -> [Inhibitor] {
        try await callManager("ListInhibitors").first?.arrayValue?.compactMap { Inhibitor(busValue: $0) } ?? []
    }

    // MARK: Calling

    /// For what waits for a program's delegate, which may take its time.
    static var longTimeout: Duration { .seconds(120) }

    @discardableResult
    func callManager(
        _ method: String, _ arguments: [DBusValue] = [], _ timeout: Duration? = nil
    ) async throws(DaemonClientError) -> [DBusValue] {
        try await call(Self.root, PTTBus.managerInterface, method, arguments, timeout)
    }

    @discardableResult
    private func callChannel(
        _ uuid: UUID?, _ method: String, _ arguments: [DBusValue] = [], _ timeout: Duration? = nil
    ) async throws(DaemonClientError) -> [DBusValue] {
        let path = uuid.flatMap { try? DBusObjectPath(PTTBus.channelPath($0)) } ?? snapshot.activeChannel?.path
        guard let path else { throw .refused(PTChannelError(.channelNotFound, explanation: "no channel is joined")) }
        do throws(DaemonClientError) {
            return try await call(path, PTTBus.channelInterface, method, arguments, timeout)
        } catch {
            guard error.isUnknownObject else { throw error }
            throw .refused(PTChannelError(.channelNotFound, explanation: "no active channel has this UUID"))
        }
    }

    @discardableResult
    func call(
        _ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue],
        _ timeout: Duration? = nil
    ) async throws(DaemonClientError) -> [DBusValue] {
        do throws(DBusError) {
            return try await bus.call(
                destination: PTTBus.name, path: path, interface: interface, method: method, arguments: arguments,
                timeout: timeout ?? answerLimit, startsService: false)
        } catch {
            switch error {
            case .disconnected: throw .notRunning(looked: ["\(bus.address)"])
            case .remote(let name, _) where name.hasSuffix(".ServiceUnknown") || name.hasSuffix(".NameHasNoOwner"):
                throw .notRunning(looked: ["\(bus.address)"])
            default: throw .bus(error)
            }
        }
    }
}

extension [DBusValue] {
    /// What an answer of the daemon says; `code` is the type that it should be of.
    func read<T>(_ code: String, _ body: ([DBusValue]) -> T?) throws(DaemonClientError) -> T {
        guard let result = body(self) else { throw .bus(.unexpectedType(expected: code, got: signature.rawValue)) }
        return result
    }

    /// The channel whose object an answer names.
    fileprivate func channel() throws(DaemonClientError) -> UUID {
        try read("o") { $0.first?.objectPathValue.flatMap { PTTBus.channelUUID($0.rawValue) } }
    }
}
