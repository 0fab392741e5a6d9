// A rate limit for signals, per group: it keeps the newest signal of each item. Pure: arrivals and time go in.
import MonotonicTime

/// Passes the signals of each group at once, up to a burst and then at a rate. Beyond that it keeps only the newest
/// signal of each item and passes it later, so the last value always arrives. Groups do not wait for each other.
struct SignalValve<Message> {
    /// Groups known at a time; of more, signals are let through.
    static var groupsMax: Int { 256 }
    /// Items of a group that wait at a time; of more, the oldest is let through.
    static var itemsMax: Int { 32 }
    /// A flood ends when nothing was dropped for this time.
    static var calmTime: Duration { .seconds(5) }

    private struct Group {
        /// When the group's next signal would be due at the steady rate; up to a burst ahead of now.
        var due: Instant
        /// In the order in which their items came.
        var held: [(item: String, message: Message)] = []
        var windowBegan: Instant
        var count = 0
        var leftOut = 0
        /// When the flood ends unless more is dropped; nil without a flood.
        var floodEnds: Instant?
    }

    let burst: Int
    let interval: Duration
    private var groups: [String: Group] = [:]
    private var reports: [DBusSignalFlood] = []

    /// - Parameters:
    ///   - burst: Signals of a quiet group that are let through at once.
    ///   - interval: The time between those of a flood.
    init(burst: Int, interval: Duration) {
        self.burst = burst
        self.interval = interval
    }

    private var ahead: Duration { interval * (burst - 1) }

    /// When `takeDue` has something to do.
    var nextDeadline: Instant? {
        groups.values.lazy.compactMap { $0.held.isEmpty ? $0.floodEnds : $0.due - ahead }.min()
    }

    var isEmpty: Bool { groups.isEmpty }

    /// A signal that may be left out when a newer one of its item comes.
    ///
    /// - Returns: Whether it is let through now; else it is kept.
    mutating func arrive(_ message: Message, item: String, of name: String, at now: Instant) -> Bool {
        if groups[name] == nil {
            if groups.count >= Self.groupsMax { forgetQuiet(at: now) }
            guard groups.count < Self.groupsMax else { return true }
        }
        // Taken out while it changes, so that it is not copied.
        var group = groups.removeValue(forKey: name) ?? Group(due: now, windowBegan: now)
        defer { groups[name] = group }
        if now - group.windowBegan >= .seconds(1) { (group.windowBegan, group.count, group.leftOut) = (now, 0, 0) }
        group.count += 1
        if group.held.isEmpty, group.due - ahead <= now {
            group.due = max(group.due, now) + interval
            return true
        }
        guard let index = group.held.firstIndex(where: { $0.item == item }) else {
            guard group.held.count < Self.itemsMax else { return true }
            group.held.append((item, message))
            return false
        }
        group.held[index].message = message
        group.leftOut += 1
        if group.floodEnds != nil {
            group.floodEnds = now + Self.calmTime
        } else if group.leftOut > burst {
            group.floodEnds = now + Self.calmTime
            let elapsed = max(.milliseconds(50), now - group.windowBegan)
            reports.append(DBusSignalFlood(name, perSecond: Int(Double(group.count) * (.seconds(1) / elapsed))))
        }
        return false
    }

    /// What may be let through by now, in order.
    mutating func takeDue(at now: Instant) -> [Message] {
        var result: [Message] = []
        for name in groups.keys {
            guard var group = groups[name] else { continue }
            while !group.held.isEmpty, group.due - ahead <= now {
                result.append(group.held.removeFirst().message)
                group.due = max(group.due, now) + interval
            }
            if let end = group.floodEnds, end <= now, group.held.isEmpty {
                group.floodEnds = nil
                reports.append(DBusSignalFlood(name, perSecond: nil))
            }
            groups[name] = group
        }
        if groups.count > Self.groupsMax / 2 { forgetQuiet(at: now) }
        return result
    }

    /// Everything that waits, of one group or (nil) of all: something comes that must not overtake it.
    mutating func takeAll(of name: String?) -> [Message] {
        var result: [Message] = []
        for name in name.map({ [$0] }) ?? Array(groups.keys) {
            guard var group = groups[name], !group.held.isEmpty else { continue }
            result += group.held.map(\.message)
            group.due = group.due + interval * group.held.count
            group.held = []
            groups[name] = group
        }
        return result
    }

    /// Floods that have begun or ended since this was asked last.
    mutating func takeReports() -> [DBusSignalFlood] {
        defer { reports = [] }
        return reports
    }

    /// The sender has gone: nothing waits, and nobody floods.
    mutating func reset() {
        groups = [:]
        reports = []
    }

    private mutating func forgetQuiet(at now: Instant) {
        groups = groups.filter { !$0.value.held.isEmpty || $0.value.floodEnds != nil || $0.value.due > now }
    }
}
