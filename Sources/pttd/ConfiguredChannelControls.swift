// What the bus can ask of a daemon whose only channel is the configured one.
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor

/// Carries requests to the configured channel. That is neither joined nor left over the bus, and gets no pushes from programs.
actor ConfiguredChannelControls: DaemonControls {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let bridge: Bridge
    private let channel: ChannelService
    /// Who began the last transmission by request, by its unique name.
    private var requester: String?

    init(bridge: Bridge, channel: ChannelService, loop: EventLoop) {
        self.bridge = bridge
        self.channel = channel
        self.loop = loop
    }

    func pressTalkKey(caller: String) async throws(PTChannelError) { try await bridge.press(.caller(caller)) }

    func releaseTalkKey(caller: String) async -> Bool { await bridge.release(.caller(caller)) }

    func register(_ application: Application) async throws(PTInstantiationError) -> UUID? { nil }

    func applicationLeft(_ application: ApplicationID) async {}

    func join(_ request: JoinRequest) async throws(PTChannelError) -> UUID {
        throw PTChannelError(.channelLimitReached, explanation: "the channel of pttd's configuration is active")
    }

    func leave(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        throw PTChannelError(.unknown, explanation: "the channel of pttd's configuration is left by changing that")
    }

    func requestBeginTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try await self.channel.beginTransmitting(channelUUID: channel, source: .developerRequest)
        requester = caller.busName
    }

    func requestStopTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try await self.channel.stopTransmitting(channelUUID: channel, source: .developerRequest)
    }

    func requestingCallerLeft(_ caller: BusCaller) async {
        let snapshot = await channel.snapshot
        guard caller.busName == requester, snapshot.transmission?.source == .developerRequest,
            let uuid = snapshot.channel?.uuid
        else { return }
        try? await channel.stopTransmitting(channelUUID: uuid, source: .unknown)
    }

    func setDescriptor(
        _ descriptor: PTChannelDescriptor, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.setChannelDescriptor(descriptor, channelUUID: channel)
    }

    func setServiceStatus(
        _ status: PTServiceStatus, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        throw PTChannelError(.unknown, explanation: "pttd knows the service status of its own channel")
    }

    func setTransmissionMode(
        _ mode: PTTransmissionMode, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.setTransmissionMode(mode, channelUUID: channel)
    }

    func setActiveRemoteParticipant(
        _ participant: PTParticipant?, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        throw PTChannelError(.unknown, explanation: "pttd knows who is speaking on its own channel")
    }

    func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.setAccessoryButtonEventsEnabled(enabled, channelUUID: channel)
    }

    func reportPushToTalkMessage(
        _ payload: String, to channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        throw PTChannelError(.unknown, explanation: "the channel of pttd's configuration gets no pushes")
    }

    func callsChanged(inhibitors: [Inhibitor]) async { await channel.setCallActive(!inhibitors.isEmpty) }
}
