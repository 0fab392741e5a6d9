// What the rooms say of themselves, as the properties of org.pttd.
import Accessories
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor

/// Keeps the bus's properties as the rooms are. Changes within one turn of the loop are told together.
actor StatusPublisher {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let api: DaemonAPI
    private let bridge: Bridge
    private let channel: ChannelService
    private var accessories: AccessoryService?
    private var isScheduled = false

    init(api: DaemonAPI, bridge: Bridge, channel: ChannelService, loop: EventLoop) {
        self.api = api
        self.bridge = bridge
        self.channel = channel
        self.loop = loop
    }

    func follow(_ accessories: AccessoryService) { self.accessories = accessories }

    /// Something that the bus shows may be different.
    func changed() {
        guard !isScheduled else { return }
        isScheduled = true
        Task { await self.publish() }
    }

    /// Told in order with the properties.
    func failed(_ error: PTChannelError) {
        Task { await api.transmissionFailed(error) }
    }

    private func publish() async {
        isScheduled = false
        let snapshot = await channel.snapshot
        await api.update(channel: ChannelProperties(snapshot, detail: await bridge.serviceDetail))
        if let accessories { await api.update(accessories: await accessories.statuses.map { AccessoryProperties($0) }) }
    }
}

extension ChannelProperties {
    /// The channel of the channel service, or none.
    init?(_ snapshot: ChannelServiceSnapshot, detail: String) {
        guard let channel = snapshot.channel else { return nil }
        self.init()
        uuid = channel.uuid.uuidString.lowercased()
        name = channel.descriptor.name
        image = channel.descriptor.image
        serviceStatus = "\(channel.serviceStatus)"
        // A sound device that does not open keeps a ready service from being of use.
        serviceStatusDetail = detail.isEmpty ? snapshot.audioProblem ?? "" : detail
        transmissionMode = "\(channel.transmissionMode)"
        transmitting = snapshot.transmission != nil
        transmitSource = snapshot.transmission.map { "\($0.source)" } ?? ""
        activeRemoteParticipant = snapshot.activeRemoteParticipant?.name ?? ""
        accessoryButtonEventsEnabled = channel.accessoryButtonEventsEnabled
    }
}

extension AccessoryProperties {
    /// How an accessory is doing.
    init(_ status: AccessoryStatus) {
        self.init()
        name = status.name
        address = status.address
        profile = status.profileID ?? ""
        profileTitle = status.profileTitle ?? ""
        connected = status.isConnected
        ready = status.isReady
        battery = status.battery
        held = status.isHeld
        problem = status.problem ?? ""
    }
}
