// The submenu "Channels nearby": its lines while channels come and go, and the meaning of a click. Pure.
import MonotonicTime

/// The lines of the submenu.
///
/// While it is open a line keeps its place: one whose channel has gone stays there and does nothing, and new ones come below. A line's
/// number belongs to one channel as long as this process lives. So a click never joins another channel than the one that the user saw.
struct NearbySubmenu {
    /// What a click asks for.
    enum Click: Hashable, Sendable {
        case join(String)
        /// Somebody is asked first.
        case ask(String, name: String, creator: String)
        /// It has a code, which a menu cannot take.
        case locked(name: String)
    }

    /// The most channels that it shows.
    static let linesMax = 20
    /// The number of the first line of a channel on the bus; the fixed lines have smaller ones.
    static let firstNumber: Int32 = 1_000
    /// How long the search continues after the menu was closed, so that it is filled when it is opened again soon.
    static let lingerAfterClosing = Duration.seconds(2)
    /// The same after it was opened, where the tray does not tell that it was closed.
    static let openMax = Duration.seconds(60)
    /// Other people's names are cut after this many characters, so that a line fits on a screen.
    static let nameMax = 40

    private struct Slot {
        let number: Int32
        var channel: SystemUINearby.Channel
        var isGone = false
        /// Clicks count from then on.
        var countsFrom: Instant
    }

    private var nearby = SystemUINearby()
    private var slots: [Slot] = []
    /// The number of the next line.
    private var next = firstNumber
    private var isOpen = false
    /// Until when channels are looked for; nil: they are not.
    private var browsesUntil: Instant?
    /// New lines may have moved all of them on the screen: a menu at its lower edge grows upwards.
    private var countsFrom = Instant.zero

    /// Whether channels are looked for.
    var isBrowsing: Bool { browsesUntil != nil }
    /// When `pass` must be called; nil while nothing is pending.
    var nextDeadline: Instant? { browsesUntil }

    // MARK: What happens

    /// It is about to be shown, or is.
    mutating func opened(at now: Instant) {
        browsesUntil = now + Self.openMax
        guard !isOpen else { return }
        isOpen = true
        compact(at: now)
    }

    /// It is closed. A click may come after that: the lines stay as they are for a while.
    mutating func closed(at now: Instant) {
        guard isOpen else { return }
        isOpen = false
        browsesUntil = now + Self.lingerAfterClosing
    }

    /// Time has passed.
    mutating func pass(to now: Instant) {
        guard let end = browsesUntil, end <= now else { return }
        browsesUntil = nil
        isOpen = false
        compact(at: now)
    }

    /// What is nearby now.
    mutating func update(_ new: SystemUINearby, at now: Instant) {
        nearby = new
        guard isBrowsing else { return compact(at: now) }
        let current = Dictionary(new.channels.map { ($0.id, $0) }) { first, _ in first }
        for index in slots.indices {
            let before = slots[index]
            slots[index].isGone = current[before.channel.id] == nil
            if let channel = current[before.channel.id] { slots[index].channel = channel }
            // It means something else than a moment ago.
            let after = slots[index]
            if before.isGone != after.isGone || before.channel.admission != after.channel.admission {
                slots[index].countsFrom = now + SystemUIStateMachine.clickGuard
            }
        }
        if append(new.channels, at: now), isOpen { countsFrom = now + SystemUIStateMachine.clickGuard }
    }

    /// A click on a line; nil: it does nothing.
    mutating func clicked(_ number: Int32, activeChannel: String?, at now: Instant) -> Click? {
        guard let slot = slots.first(where: { $0.number == number }), now >= max(slot.countsFrom, countsFrom),
            isEnabled(slot, activeChannel)
        else { return nil }
        let channel = slot.channel
        let name = Self.name(channel.name)
        switch channel.admission {
        case _ where channel.isOwn: return .join(channel.id)
        case .open: return .join(channel.id)
        case .code: return .locked(name: name)
        case .ask: return .ask(channel.id, name: name, creator: Self.name(channel.creator))
        case .unknown: return nil
        }
    }

    // MARK: The lines

    /// The lines in the order of the list, without those that are gone. Whoever is there keeps its number.
    private mutating func compact(at now: Instant) {
        let before = slots
        let numbers = Dictionary(before.map { ($0.channel.id, $0.number) }) { first, _ in first }
        slots = []
        append(nearby.channels, numbers: numbers, at: now)
        let isAsBefore = slots.map(\.number) == before.map(\.number)
        countsFrom = isOpen && !isAsBefore ? now + SystemUIStateMachine.clickGuard : now
    }

    /// Returns whether there are new lines.
    @discardableResult
    private mutating func append(
        _ channels: [SystemUINearby.Channel], numbers: [String: Int32] = [:], at now: Instant
    ) -> Bool {
        let count = slots.count
        var known = Set(slots.map(\.channel.id))
        for channel in channels where slots.count < Self.linesMax && known.insert(channel.id).inserted {
            let number = numbers[channel.id] ?? next
            if number == next { next = next == .max ? Self.firstNumber : next + 1 }
            slots.append(Slot(number: number, channel: channel, countsFrom: now))
        }
        return slots.count > count
    }

    // MARK: What is shown

    /// What the menu shows.
    func view(activeChannel: String?) -> MenuView.Nearby {
        let labels = slots.map { Self.name($0.channel.name) + Self.name($0.channel.creator) }
        let alike = Dictionary(grouping: labels, by: \.self).filter { $0.value.count > 1 }
        return MenuView.Nearby(
            header: header,
            lines: zip(slots, labels).map { slot, label in
                .init(
                    number: slot.number, label: text(of: slot, activeChannel, isAlike: alike[label] != nil),
                    isEnabled: isEnabled(slot, activeChannel),
                    isLocked: slot.channel.admission == .code && !slot.channel.isOwn)
            })
    }

    private var header: String {
        let problem = DisplayText.line(nearby.problem, fallback: "")
        if !problem.isEmpty { return problem }
        if slots.isEmpty { return "Looking for channels…" }
        let shown = Set(slots.map(\.channel.id))
        let more = nearby.channels.count { !shown.contains($0.id) }
        return more == 0 ? "Choose one to join it" : "Choose one to join it; \(more) more: 'pttctl nearby'"
    }

    private func isEnabled(_ slot: Slot, _ activeChannel: String?) -> Bool {
        !slot.isGone && slot.channel.admission != .unknown && slot.channel.channel != activeChannel
            && slot.channel.id != nearby.joining
    }

    private func text(of slot: Slot, _ activeChannel: String?, isAlike: Bool) -> String {
        let channel = slot.channel
        var remarks = [channel.isOwn ? "of this machine" : Self.name(channel.creator)]
        // Strangers can call themselves alike; their keys differ.
        if isAlike { remarks.append("key \(Self.name(String(channel.id.suffix(8))))") }
        // Where no network carries a channel of this machine, nobody tells how many there are.
        if channel.members > 0 { remarks.append(channel.members == 1 ? "1 member" : "\(channel.members) members") }
        if slot.isGone {
            remarks.append("gone")
        } else if channel.channel == activeChannel {
            remarks.append("joined")
        } else if channel.id == nearby.joining {
            remarks.append(channel.admission == .ask ? "waiting for approval" : "joining")
        } else if !channel.isOwn {
            switch channel.admission {
            case .open: break
            case .code: remarks.append("locked")
            case .ask: remarks.append("asks before it lets you in")
            case .unknown: remarks.append("needs a newer version")
            }
        }
        return "\(Self.name(channel.name)) (\(remarks.joined(separator: ", ")))"
    }

    private static func name(_ text: String) -> String {
        DisplayText.line(text, fallback: "without a name", limit: nameMax)
    }
}
