// The rules of worn headsets: whose microphone and speaker are used, and when a headset is switched to its hands-free
// profile and back. Pure.
import Audio
import MonotonicTime

/// The headsets of this machine's accessories.
///
/// A press of an accessory with a microphone uses that microphone, and speech is heard in the speaker of the accessory
/// that was pressed last. Where a sound server has the headset in a profile for music, which has no microphone, the
/// headset is switched to hands-free for the transmission, and back a while after the last sound.
public struct HeadsetsStateMachine: Sendable {
    /// When a headset's hands-free link is up.
    public enum LinkUse: Hashable, Sendable {
        /// For transmissions only. Music sounds well in between, and the battery lasts longer.
        case onPress
        /// While a channel is joined, so that talk begins at once.
        case kept
    }

    package enum Event: Equatable, Sendable {
        /// The accessories, whenever one is different.
        case accessories([WornAccessory])
        /// Everything that a service shows, whenever something is different; nothing, when the service is gone.
        case listed([HeadsetFacts], by: SoundService)
        /// Somebody asks to talk by this accessory's control.
        case pressed(accessory: String)
        /// No accessory's press counts any more.
        case released
        /// Somebody talks or is heard, or not any more.
        case sessionChanged(isActive: Bool)
        /// A channel is joined, or none any more.
        case channelChanged(isJoined: Bool)
        /// `Action.setProfile` was carried out, or refused with these words.
        case profileSet(card: UInt32, problem: String?)
        /// The worn microphone hears, so long after the press. `settledAfter`: how long it gave something else before.
        case heard(after: Duration, settledAfter: Duration?)
        /// The worn microphone gives no sound within a transmission.
        case fellSilent
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    package enum Action: Equatable, Sendable {
        /// The next transmission and received speech use this.
        case use(WornSound)
        /// The sound server is to use the card in this way.
        case setProfile(card: UInt32, String)
        /// The sound server is to open the headset's link anew. A link that the headset has closed stays closed as long as the server's
        /// node is in use, and the node gives zeros (measured with PipeWire 1.4).
        case renewLink(HeadsetFacts)
        /// Accessories' sound may be shown differently.
        case changed
        /// The times that were learned about a headset, for the next start.
        case learned([String: [Duration]])
    }

    /// How long a headset stays hands-free after the last sound: an answer comes within that time, mostly.
    static let restoreAfter = Duration.seconds(3)
    /// How long a press waits for a microphone to appear after the profile was switched.
    static let awaitMax = Duration.milliseconds(2_500)
    /// How long a refused switch is not tried again.
    static let retryAfter = Duration.seconds(2)
    /// A longer time is not learned: it says that the microphone did not work.
    static let settlingMax = Duration.seconds(2)
    /// The profile of a card that is not used (PulseAudio and PipeWire).
    private static let off = "off"
    /// Headsets that are looked at.
    static let headsetsMax = 32
    /// Learned times that are kept for a headset, and headsets that they are kept for.
    static let learnedMax = 8

    /// A headset that was switched to its hands-free profile.
    private struct Switched {
        let card: UInt32
        let profile: String
        /// What it was used for before; nil: nothing.
        let former: String?
        var retryAt: Instant?
        var problem: String?
    }

    /// A headset that was told to go back to its music, while the server's listing still shows it as hands-free.
    private struct Returning {
        let card: UInt32
        /// The hands-free profile that is still shown.
        let shown: String
        /// What it goes back to.
        let profile: String
        var isAnswered = false
    }

    private let link: LinkUse
    private let usesMicrophone: Bool
    private var accessories: [WornAccessory] = []
    private var listed: [SoundService: [HeadsetFacts]] = [:]
    /// The addresses in the order in which they appeared, the newest last.
    private var present: [String] = []
    /// The address of the accessory that talked last, of those with sound.
    private var talker: String?
    private var isWornPress = false
    private var isActive = false
    private var isJoined = false
    /// Until when the talker's headset stays hands-free when it is not in use. Nil: it needs another press first.
    private var wantedUntil: Instant?
    private var awaitedUntil: Instant?
    private var switched: [String: Switched] = [:]
    private var returning: [String: Returning] = [:]
    private var learned: [String: [Duration]]
    /// From the last press to the sound of the room.
    private var heardAfter: [String: Duration] = [:]
    private var told = WornSound.none

    /// - Parameters:
    ///   - link: When the hands-free link is up.
    ///   - usesMicrophone: Whether presses use worn microphones. Otherwise no headset is switched: the profile for music has a speaker.
    ///   - learned: What `Action.learned` told last.
    public init(link: LinkUse = .onPress, usesMicrophone: Bool = true, learned: [String: [Duration]] = [:]) {
        self.link = link
        self.usesMicrophone = usesMicrophone
        self.learned = learned
    }

    /// Whether an accessory may have sound, so that the services are worth being asked.
    public var isNeeded: Bool { accessories.contains(where: \.hasSound) }

    /// When `deadlineReached` is due.
    package var nextDeadline: Instant? {
        ([awaitedUntil, switched.isEmpty || isInUse ? nil : wantedUntil] + switched.values.map(\.retryAt))
            .compactMap(\.self).min()
    }

    /// What an accessory's sound is, in words for people; nil: it has none.
    public func summary(of id: String) -> String? {
        guard let accessory = accessories.first(where: { $0.id == id }) else { return nil }
        guard let facts = facts(of: accessory.address) else {
            return accessory.hasSound ? "sound away: connect it as a headset" : nil
        }
        if let problem = switched[accessory.address]?.problem { return "microphone away: \(problem)" }
        switch (facts.microphone ?? facts.handsFreeProfile?.name, facts.speaker) {
        case (nil, nil): return "sound away: its sound service shows neither microphone nor speaker"
        case (nil, _?): return "speaker, no microphone: it has no hands-free profile here"
        case (_?, nil): return "microphone" + start(of: accessory.address)
        case (_?, _?): return "microphone and speaker" + start(of: accessory.address)
        }
    }

    private func start(of address: String) -> String {
        heardAfter[address].map { "; heard \($0.nanoseconds / 1_000_000) ms after the last press" } ?? ""
    }

    // MARK: Events

    package mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        followUse(at: now)
        let actions = apply(event, at: now)
        return actions + reconcile(at: now)
    }

    /// A press of the talker counts, or somebody talks or is heard.
    private var isInUse: Bool { isWornPress || isActive }

    /// The pause counts from the end of the press or of the last sound, whichever is later.
    private mutating func followUse(at now: Instant) {
        guard let until = wantedUntil else { return }
        if isInUse { wantedUntil = now + Self.restoreAfter } else if now >= until { wantedUntil = nil }
    }

    private mutating func apply(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .accessories(let new):
            guard new != accessories else { return [] }
            accessories = new
            actions.append(.changed)
        case .listed(let facts, let service):
            let bounded = Array(facts.prefix(Self.headsetsMax))
            guard listed[service] ?? [] != bounded else { return [] }
            listed[service] = bounded
            follow()
            actions.append(.changed)
        case .pressed(let id):
            press(id, at: now)
            // Of this press nothing is known yet, and what is the same again is to be seen as new.
            if isWornPress, let talker, heardAfter.removeValue(forKey: talker) != nil { actions.append(.changed) }
        case .released:
            isWornPress = false
            awaitedUntil = nil
        case .sessionChanged(let isActive):
            guard self.isActive != isActive else { return [] }
            self.isActive = isActive
        case .channelChanged(let isJoined): self.isJoined = isJoined
        case .profileSet(let card, let problem):
            if answersReturn(of: card, isRefused: problem != nil) { break }
            guard let (address, _) = switched.first(where: { $0.value.card == card }) else { return [] }
            switched[address]?.problem = problem
            switched[address]?.retryAt = problem == nil ? nil : now + Self.retryAfter
            if problem != nil { awaitedUntil = nil }
            actions.append(.changed)
        case .heard(let after, let settledAfter):
            guard let talker else { return [] }
            heardAfter[talker] = after
            actions.append(.changed)
            if let settledAfter, let action = learn(settledAfter, of: talker) { actions.append(action) }
        case .fellSilent:
            if let talker, let facts = listed[.soundServer]?.first(where: { $0.address == talker }),
                facts.microphone != nil
            {
                actions.append(.renewLink(facts))
            }
        case .deadlineReached: break
        }
        return actions
    }

    private mutating func press(_ id: String, at now: Instant) {
        guard let accessory = accessories.first(where: { $0.id == id }),
            accessory.hasSound || facts(of: accessory.address) != nil
        else {
            isWornPress = false
            awaitedUntil = nil
            return
        }
        isWornPress = true
        talker = accessory.address
        wantedUntil = now + Self.restoreAfter
        let facts = facts(of: accessory.address)
        // A new press is a new attempt.
        if let known = switched[accessory.address], facts?.card?.activeProfile != known.profile {
            switched[accessory.address] = nil
        }
        let isOnItsWay = lastingMicrophone(of: accessory.address) == nil && facts?.handsFreeProfile != nil
        awaitedUntil = isOnItsWay ? now + Self.awaitMax : nil
    }

    /// Keeps the order in which headsets came, and forgets what was switched on those that are gone.
    private mutating func follow() {
        let now = Set(listed.values.joined().map(\.address))
        present.removeAll { !now.contains($0) }
        present += now.subtracting(present).sorted()
        heardAfter = heardAfter.filter { present.contains($0.key) }
        switched = switched.filter { address, change in facts(of: address)?.card?.index == change.card }
        returning = returning.filter { address, change in
            let card = facts(of: address)?.card
            return card?.index == change.card && card?.activeProfile == change.shown
        }
    }

    /// Whether this is the answer to a return, and not to a switch after it: the server answers in the order of the requests.
    private mutating func answersReturn(of card: UInt32, isRefused: Bool) -> Bool {
        guard let (address, change) = returning.first(where: { $0.value.card == card }) else { return false }
        // After a return that was refused, and after a switch that was not, it is hands-free as it is shown.
        if change.isAnswered != isRefused { returning[address] = nil } else { returning[address]?.isAnswered = true }
        return !change.isAnswered
    }

    private mutating func learn(_ span: Duration, of address: String) -> Action? {
        guard span >= .zero, span <= Self.settlingMax else { return nil }
        if learned[address] == nil, learned.count >= Self.headsetsMax { learned.removeAll() }
        learned[address] = Array(((learned[address] ?? []) + [span]).suffix(Self.learnedMax))
        return .learned(learned)
    }

    // MARK: What follows

    private mutating func reconcile(at now: Instant) -> [Action] {
        if let until = awaitedUntil, now >= until || talker.flatMap(lastingMicrophone) != nil { awaitedUntil = nil }
        var actions: [Action] = []
        for address in present {
            if let action = isWanted(address) ? take(address, at: now) : restore(address) {
                actions.append(action)
            }
        }
        let sound = sound
        if sound != told {
            told = sound
            // First what a transmission waits for.
            actions.insert(.use(sound), at: 0)
        }
        return actions
    }

    private func isWanted(_ address: String) -> Bool {
        if link == .kept, isJoined, accessories.contains(where: { $0.address == address }) { return true }
        return address == talker && wantedUntil != nil
    }

    private mutating func take(_ address: String, at now: Instant) -> Action? {
        guard usesMicrophone else { return nil }
        // PipeWire shows a microphone in the music profile, too, and switches half a second after that is opened: too late.
        guard let facts = facts(of: address), let card = facts.card, let profile = facts.handsFreeProfile,
            returning[address] != nil
                || !card.profiles.contains(where: { $0.isHandsFree && $0.name == card.activeProfile })
        else {
            switched[address]?.retryAt = nil
            switched[address]?.problem = nil
            return nil
        }
        if let known = switched[address] {
            guard let retryAt = known.retryAt, now >= retryAt else { return nil }
        }
        switched[address] = Switched(
            card: card.index, profile: profile.name,
            former: switched[address]?.former ?? returning[address]?.profile ?? card.activeProfile)
        return .setProfile(card: card.index, profile.name)
    }

    private mutating func restore(_ address: String) -> Action? {
        guard let known = switched[address], let card = facts(of: address)?.card else { return nil }
        // A server that is slow has not switched yet; then this comes again.
        if card.activeProfile == known.former, known.problem == nil { return nil }
        switched[address] = nil
        // If it is neither of both, somebody else has chosen meanwhile, and is right.
        // A headset that was just connected is off until the server has chosen: that is nothing to go back to.
        guard card.activeProfile == known.profile, let former = known.former, former != Self.off else { return nil }
        returning[address] = Returning(card: card.index, shown: known.profile, profile: former)
        return .setProfile(card: card.index, former)
    }

    /// What a device offers; a service that has its microphone comes first.
    private func facts(of address: String) -> HeadsetFacts? {
        let all = SoundService.allCases.compactMap { service in listed[service]?.first { $0.address == address } }
        return all.first { $0.microphone != nil } ?? all.first
    }

    /// A microphone that is shown and does not go with a return to music.
    private func lastingMicrophone(of address: String) -> String? {
        returning[address] == nil ? facts(of: address)?.microphone : nil
    }

    private var sound: WornSound {
        WornSound(
            microphone: microphone, speaker: wearer.flatMap(facts)?.speaker.map { .alsa($0) },
            keepsLink: link == .kept && isJoined, settling: talker.flatMap(settling))
    }

    /// Whose speaker is used: that of the accessory that talked last, else of the one that came last.
    private var wearer: String? {
        if let talker, facts(of: talker)?.speaker != nil { return talker }
        return present.last { address in
            facts(of: address)?.speaker != nil && accessories.contains { $0.address == address }
        }
    }

    private var microphone: WornSound.Microphone {
        guard usesMicrophone, isWornPress, let talker else { return .configured }
        guard let facts = facts(of: talker) else {
            return .missing("the microphone of \(talker) is away: it is not connected as a headset")
        }
        if awaitedUntil != nil { return .awaited }
        if let name = facts.microphone { return .device(.alsa(name)) }
        if let problem = switched[talker]?.problem {
            return .missing("the microphone of \(talker) cannot be used: \(problem)")
        }
        return .missing(
            facts.handsFreeProfile == nil
                ? "\(talker) has no microphone here: its sound service offers no hands-free profile"
                : "the microphone of \(talker) did not appear in time")
    }

    /// The longest of what was learned.
    private func settling(of address: String) -> Duration? { learned[address]?.max() }
}
