// What the modules report, as the properties of org.pttd.
import Accessories
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor
import SystemUI

/// Keeps the bus's properties and the desktop up to date. Changes within one turn of the loop are published together,
/// and never two updates at once.
actor StatusPublisher {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let api: DaemonAPI
    private let director: ChannelDirector
    private var accessories: AccessoryService?
    private var administrator: AccessoryAdministrator?
    private var desktop: SystemUI?
    /// What the accessories' lights show.
    private var feedback = AccessoryFeedback.idle
    private var soundNews = SoundAlerts()
    private var isServed = false
    private var isDue = false
    /// Failures that were not reported yet.
    private var failures: [PTChannelError] = []
    /// The most of them; the oldest are dropped.
    private static let failuresMax = 16
    private var isPublishing = false
    private var level: Float?
    private var isLevelDue = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(api: DaemonAPI, director: ChannelDirector) {
        self.api = api
        self.director = director
        loop = director.loop
    }

    func follow(_ accessories: AccessoryService, _ administrator: AccessoryAdministrator) {
        self.accessories = accessories
        self.administrator = administrator
    }

    /// What accessories tell: controls and emergencies go to the bus at once, the rest with the properties.
    func happened(_ event: AccessoryEvent) {
        administrator?.assumeIsolated { $0.happened(event) }
        changed()
    }

    /// What comes of setting up accessories.
    func happened(_ event: AccessorySetupEvent) { administrator?.assumeIsolated { $0.happened(event) } }

    func show(on desktop: SystemUI) {
        self.desktop = desktop
        changed()
    }

    /// There is something to publish on from now on.
    func start() {
        isServed = true
        changed()
    }

    /// Something that is shown may be different.
    func changed() {
        showFeedback()
        isDue = true
        guard isServed, !isPublishing else { return }
        isPublishing = true
        Task { await self.publishAll() }
    }

    /// Own speech is so loud, or, nil, there is none. Told by itself: ten times a second everything else would be too much.
    func levelChanged(_ new: Float?) {
        level = new
        guard isServed, !isLevelDue else { return }
        isLevelDue = true
        Task { await self.publishLevel() }
    }

    private func publishLevel() async {
        isLevelDue = false
        await api.update(inputLevel: ChannelProperties.inputLevel(level))
    }

    /// Told after the properties, which say already that nothing is transmitted.
    func failed(_ error: PTChannelError) {
        desktop?.assumeIsolated { $0.failed(error.explanation) }
        showRefusal()
        if failures.count == Self.failuresMax { failures.removeFirst() }
        failures.append(error)
        changed()
    }

    /// A control was pressed in vain.
    func refused(_ error: PTChannelError) {
        announce(error.explanation)
        showRefusal()
    }

    /// Announces an event that no property shows.
    func announce(_ text: String) { desktop?.assumeIsolated { $0.announce(text) } }

    /// An emergency control was held for as long as its guard asks.
    func emergency(_ source: AccessorySource) {
        desktop?.assumeIsolated { $0.announce("Emergency: \(source.accessory)", isUrgent: true) }
    }

    /// Updates the lights at once, before the bus, because a light shows that the microphone is open.
    private func showFeedback() {
        let snapshot = director.assumeIsolated { $0.shown.snapshot }
        let now = AccessoryFeedback(snapshot)
        if now != feedback {
            feedback = now
            accessories?.assumeIsolated { $0.setFeedback(now) }
        }
        let sound = SoundAlerts.State(
            speakerProblem: snapshot.speakerProblem, microphoneProblem: snapshot.microphoneProblem,
            talker: snapshot.activeRemoteParticipant?.name, isTransmitting: snapshot.transmission != nil)
        for news in soundNews.update(sound) {
            switch news {
            case .announce(let text): announce(text)
            case .flash: showRefusal()
            }
        }
    }

    /// For a moment.
    private func showRefusal() { accessories?.assumeIsolated { $0.setFeedback(.refused) } }

    /// Returns when the current state was published.
    func published() async {
        changed()
        await withCheckedContinuation { waiting.append($0) }
    }

    private func publishAll() async {
        while isDue {
            isDue = false
            let told = waiting
            waiting = []
            await publish()
            for continuation in told { continuation.resume() }
        }
        isPublishing = false
    }

    private func publish() async {
        let failed = failures
        failures = []
        let state = await director.shown
        await desktop?.update(SystemUIState(state.snapshot, detail: state.detail))
        await api.update(channel: ChannelProperties(state.snapshot, detail: state.detail, owner: state.owner))
        await api.update(call: state.snapshot.calls.map(\.description).joined(separator: "; "))
        await api.update(
            microphoneProblem: state.snapshot.microphoneProblem ?? "",
            speakerProblem: state.snapshot.speakerProblem ?? "")
        if let administrator { await api.update(accessories: await administrator.properties) }
        for error in failed { await api.transmissionFailed(error) }
    }
}

extension SystemUIState {
    /// What the desktop shows of the channel service.
    init(_ snapshot: ChannelServiceSnapshot, detail: String) {
        self.init(
            channel: snapshot.channel.map {
                Channel(
                    identifier: $0.uuid.uuidString.lowercased(), descriptor: $0.descriptor,
                    serviceStatus: $0.serviceStatus, serviceDetail: detail,
                    transmissionMode: $0.transmissionMode)
            }, speaker: snapshot.activeRemoteParticipant, isTransmitting: snapshot.transmission != nil)
    }
}

extension ChannelProperties {
    /// The channel of the channel service, or none.
    init?(_ snapshot: ChannelServiceSnapshot, detail: String, owner: String) {
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
        // The relay tells the place a moment after the press; the last place is better than none.
        queuePosition = snapshot.waiting.map { UInt32(clamping: $0.position ?? 1) } ?? 0
        inputLevel = Self.inputLevel(snapshot.inputLevel)
        activeRemoteParticipant = snapshot.activeRemoteParticipant?.name ?? ""
        remoteParticipants =
            snapshot.activeRemoteParticipant.map { active in
                snapshot.remoteParticipants.isEmpty ? [active.name] : snapshot.remoteParticipants.map(\.name)
            } ?? []
        accessoryButtonEventsEnabled = channel.accessoryButtonEventsEnabled
        self.owner = owner
        media = channel.media == .application ? .application : .pttd
    }
}
