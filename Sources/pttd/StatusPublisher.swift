// What the modules report, as the properties of org.pttd.
import Accessories
import AccessorySetup
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import Headsets
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import SpokenPrompts
import SystemUI

/// Keeps the bus's properties, the desktop and the accessories' lights in step with the modules. Changes within one turn of the loop are
/// published together, after what caused them has been carried out, and only one publication is under way at a time.
actor StatusPublisher {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let api: DaemonAPI
    private let director: ChannelDirector
    private var accessories: AccessoryService?
    private var administrator: AccessoryAdministrator?
    private var headsets: Headsets?
    private var desktop: SystemUI?
    /// What the accessories' lights show.
    private var feedback = AccessoryFeedback.idle
    private var soundNews = SoundAlerts()
    private var batteryNews = BatteryNews()
    private var isServed = false
    /// A look at the modules is on its way: it sees all changes until then.
    private var isLookPosted = false
    /// What was seen last and is not published yet.
    private var seen: Seen?
    /// How often the modules were looked at.
    private(set) var looks = 0
    /// Failures that are not told yet.
    private var failures: [PTChannelError] = []
    /// The most of them; the oldest are dropped.
    private static let failuresMax = 16
    private var isPublishing = false
    private var level: Float?
    private var isLevelDue = false
    /// Those that wait until what is so now has been published.
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// The modules at one moment, and who is to be told of it.
    private struct Seen {
        var channel: (snapshot: ChannelServiceSnapshot, detail: String, owner: String, path: RelayPath?)
        var restorationProblem: String
        var failures: [PTChannelError]
        var waiting: [CheckedContinuation<Void, Never>]
    }

    init(api: DaemonAPI, director: ChannelDirector) {
        self.api = api
        self.director = director
        loop = director.loop
    }

    func follow(
        _ accessories: AccessoryService, _ administrator: AccessoryAdministrator, _ headsets: Headsets
    ) {
        self.accessories = accessories
        self.administrator = administrator
        self.headsets = headsets
    }

    /// Accessories have come, gone or changed: some of them may have a microphone.
    func tellHeadsets() {
        guard let accessories else { return }
        let worn = accessories.assumeIsolated { $0.statuses }.compactMap { status in
            status.soundAddress.map { WornAccessory(id: status.id.text, address: $0, hasSound: status.hasSound) }
        }
        headsets?.assumeIsolated { $0.accessoriesChanged(worn) }
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
        guard !isLookPosted else { return }
        isLookPosted = true
        Task { await self.look() }
    }

    /// Takes one snapshot for all changes of a turn. Lights follow at once, and not when the bus has been told: they tell that the
    /// microphone is open.
    private func look() async {
        isLookPosted = false
        looks += 1
        let channel = await director.shown
        let restorationProblem = await director.restorationProblem
        showFeedback(channel.snapshot)
        tellBatteries()
        guard isServed else { return }
        let earlier = seen
        seen = Seen(
            channel: channel, restorationProblem: restorationProblem ?? "",
            failures: Array(((earlier?.failures ?? []) + failures).suffix(Self.failuresMax)),
            waiting: (earlier?.waiting ?? []) + waiting)
        (failures, waiting) = ([], [])
        guard !isPublishing else { return }
        await publishAll()
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

    private func showFeedback(_ snapshot: ChannelServiceSnapshot) {
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

    /// By voice, where prompts are spoken.
    private func tellBatteries() {
        guard let accessories else { return }
        let levels = accessories.assumeIsolated { $0.statuses.map { (name: $0.id.text, percent: $0.battery) } }
        for prompt in batteryNews.update(levels) { director.channel.assumeIsolated { $0.say(prompt) } }
    }

    /// For a moment.
    private func showRefusal() { accessories?.assumeIsolated { $0.setFeedback(.refused) } }

    /// Returns when the current state was published.
    func published() async {
        changed()
        await withCheckedContinuation { waiting.append($0) }
    }

    private func publishAll() async {
        isPublishing = true
        while let now = seen {
            seen = nil
            await publish(now)
            for continuation in now.waiting { continuation.resume() }
        }
        isPublishing = false
    }

    private func publish(_ now: Seen) async {
        let (snapshot, detail, owner, path) = now.channel
        await desktop?.update(SystemUIState(snapshot, detail: detail))
        await api.update(channel: ChannelProperties(snapshot, detail: detail, owner: owner, path: path))
        await api.update(call: snapshot.calls.map(\.description).joined(separator: "; "))
        await api.update(
            microphoneProblem: snapshot.microphoneProblem ?? "", speakerProblem: snapshot.speakerProblem ?? "")
        await api.update(restorationProblem: now.restorationProblem)
        if let administrator { await api.update(accessories: await administrator.properties) }
        for error in now.failures { await api.transmissionFailed(error) }
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
    init?(_ snapshot: ChannelServiceSnapshot, detail: String, owner: String, path link: RelayPath?) {
        guard let channel = snapshot.channel else { return nil }
        self.init()
        uuid = channel.uuid.uuidString.lowercased()
        name = channel.descriptor.name
        image = channel.descriptor.image
        serviceStatus = "\(channel.serviceStatus)"
        // A sound device that does not open keeps a ready service from being of use.
        serviceStatusDetail = detail.isEmpty ? snapshot.audioProblem ?? "" : detail
        path = link.map { "\($0)" } ?? ""
        if case .tls(_, let why) = link { pathReason = "\(why)" }
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
