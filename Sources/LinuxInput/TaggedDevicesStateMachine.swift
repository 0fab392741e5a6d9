// Decides which tagged nodes to open, when to retry, and which problem each one has. Pure.
import MonotonicTime

/// The tagged devices, and what is to be done about them.
///
/// Opening is carried out at once; its outcome comes back as `.opened` or `.failed`.
struct TaggedDevicesStateMachine: Sendable {
    /// Devices open at a time.
    static let openMax = 32
    /// Tagged devices that are known at a time, open or not.
    static let knownMax = 256
    /// Pauses between attempts when something else has the device, or a call failed: doubled each time.
    static let firstRetry = Duration.seconds(1)
    static let longestRetry = Duration.seconds(60)

    enum Event {
        /// udev reports a tagged node: at the start, when it appears, and when anything about it changes.
        case tagged(TaggedDevice)
        /// The node is gone, or a changed rule has taken the tag away.
        case untagged(node: String)
        /// These are all that udev has; news was missed.
        case all([TaggedDevice])
        /// It was opened.
        case opened(node: String)
        /// It was not.
        case failed(node: String, LinuxInputError)
        /// It was open and can be read no more; it has been closed.
        case lost(node: String, LinuxInputError)
        /// Who may open the node has changed; nil: that of any node may have, as news was missed.
        case accessChanged(node: String?)
        /// `nextDeadline` has come.
        case deadline
    }

    enum Action: Equatable {
        case open(TaggedDevice)
        case close(node: String)
        /// What keeps it from being used, or is wrong with its rule; nil: nothing any more.
        case problem(node: String, String?)
    }

    private enum State: Equatable {
        case opening
        case open
        /// Waiting until udev reports it again.
        case waiting
        /// Until its permissions change.
        case denied
        case retrying(at: Instant)
        /// Too many are open.
        case surplus
    }

    private struct Entry {
        var device: TaggedDevice
        var state: State
        var failures = 0
        var told: String?

        /// It is open, or about to be.
        var isOpen: Bool { state == .open || state == .opening }
    }

    private var entries: [String: Entry] = [:]

    /// When to come back with `.deadline`.
    var nextDeadline: Instant? {
        entries.values.compactMap { if case .retrying(let time) = $0.state { time } else { nil } }.min()
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .tagged(let device): return tagged(device)
        case .untagged(let node): return untagged(node) + fill()
        case .all(let devices):
            let nodes = Set(devices.map(\.node))
            var actions: [Action] = []
            for node in entries.keys.sorted() where !nodes.contains(node) { actions += untagged(node) }
            // One that was lost may be there anew, and look the same.
            for device in devices {
                let entry = entries[device.node]
                if entry?.state == .waiting || entry?.device != device { actions += tagged(device) }
            }
            return actions + fill()
        case .opened(let node):
            guard entries[node] != nil else { return [.close(node: node)] }
            entries[node]?.state = .open
            entries[node]?.failures = 0
            return tell(node, nil)
        case .failed(let node, let error), .lost(let node, let error):
            return failed(node, error, at: now) + fill()
        case .accessChanged(let node):
            var actions: [Action] = []
            for node in node.map({ [$0] }) ?? entries.keys.sorted() where entries[node]?.state == .denied {
                actions += open(node)
            }
            return actions
        case .deadline:
            var actions: [Action] = []
            for (node, entry) in entries.sorted(by: { $0.key < $1.key }) {
                if case .retrying(let time) = entry.state, time <= now { actions += open(node) }
            }
            return actions
        }
    }

    private mutating func tagged(_ device: TaggedDevice) -> [Action] {
        let node = device.node
        guard let entry = entries[node] else {
            guard entries.count < Self.knownMax else {
                return [
                    .problem(node: node, "\(node) is ignored: at most \(Self.knownMax) tagged devices are examined")
                ]
            }
            entries[node] = Entry(device: device, state: .waiting)
            return open(node)
        }
        var actions: [Action] = []
        if entry.isOpen {
            // udev tells of every trifle; only another rule needs another opening.
            guard entry.device != device else { return [] }
            actions.append(.close(node: node))
        }
        entries[node]?.device = device
        entries[node]?.failures = 0
        return actions + open(node)
    }

    private mutating func untagged(_ node: String) -> [Action] {
        guard let entry = entries[node] else { return [] }
        var actions: [Action] = entry.isOpen ? [.close(node: node)] : []
        if entry.told != nil { actions.append(.problem(node: node, nil)) }
        entries[node] = nil
        return actions
    }

    private mutating func open(_ node: String) -> [Action] {
        guard let entry = entries[node] else { return [] }
        let isFull = openCount >= Self.openMax
        entries[node]?.state = isFull ? .surplus : .opening
        if isFull { return tell(node, "\(node) is not read: at most \(Self.openMax) devices are read at a time") }
        return [.open(entry.device)]
    }

    private var openCount: Int { entries.values.count(where: \.isOpen) }

    /// Opens what waits for a place.
    private mutating func fill() -> [Action] {
        var actions: [Action] = []
        for (node, entry) in entries.sorted(by: { $0.key < $1.key }) where openCount < Self.openMax {
            if entry.state == .surplus { actions += open(node) }
        }
        return actions
    }

    private mutating func failed(_ node: String, _ error: LinuxInputError, at now: Instant) -> [Action] {
        guard let entry = entries[node] else { return [] }
        switch error {
        case .permission: entries[node]?.state = .denied
        case .gone:
            // udev will say so, or tell of it anew.
            entries[node]?.state = .waiting
            return tell(node, nil)
        case .notAnInputDevice, .notASerialPort, .noSuchLine, .udev: entries[node]?.state = .waiting
        case .inUse, .system:
            let pause = min(Self.firstRetry * (1 << min(entry.failures, 10)), Self.longestRetry)
            entries[node]?.state = .retrying(at: now + pause)
            entries[node]?.failures += 1
        }
        return tell(node, error.description)
    }

    /// Tells what is wrong with a device, its rule included, unless that has been said.
    private mutating func tell(_ node: String, _ problem: String?) -> [Action] {
        guard let entry = entries[node] else { return [] }
        let all = (problem.map { [$0] } ?? []) + entry.device.rule.problems.map { "the udev rule of \(node): \($0)" }
        let text = all.isEmpty ? nil : all.joined(separator: "; ")
        guard text != entry.told else { return [] }
        entries[node]?.told = text
        return [.problem(node: node, text)]
    }
}
