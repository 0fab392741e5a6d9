// The announcements of this machine, and their state at Avahi. Pure.
import Cryptography
import DBus
import MonotonicTime
import RelayProtocol

/// The channels that this machine announces, each by an entry group of Avahi.
struct NearbyAnnouncer {
    typealias Action = NearbyStateMachine.Action

    /// Channels that can be announced at a time.
    static let channelsMaximum = 16
    /// The least time between two TXT records of a channel.
    static let updatePause = Duration.seconds(1)
    /// Names that are tried one after the other without a pause.
    static let namesAtOnce = 8

    private enum State {
        /// Nothing is under way: Avahi is not there.
        case idle
        case opening(UInt64)
        case adding(UInt64, DBusObjectPath)
        case registered(UInt64, DBusObjectPath)
        case waiting(Instant)
    }

    private struct Channel {
        var wanted: NearbyAnnouncement
        var port: UInt16
        var state = State.idle
        /// The name's number: 1 is the name itself.
        var number = 1
        var failures = RetryPause()
        var sent: NearbyAnnouncement?
        var sentAt = Instant.zero
        var isEstablished = false
    }

    private var channels: [ChannelID: Channel] = [:]
    private var isThere = false
    private var hostName: String?
    /// Why Avahi does not announce what is wanted, as of its last refusal.
    private(set) var refusal: String?

    /// Grows whenever `announced` may have changed.
    private(set) var changes = 0

    var isEmpty: Bool { channels.isEmpty }

    /// What is announced, or wanted to be.
    var announced: [NearbyAnnouncement] { channels.values.map(\.wanted) }

    func announces(_ announcement: NearbyAnnouncement) -> Bool {
        channels[announcement.channel].map { $0.wanted.pin == announcement.pin && $0.wanted.host == announcement.host }
            ?? false
    }

    var isOpening: Bool {
        channels.values.contains { if case .opening = $0.state { true } else { false } }
    }

    var nextDeadline: Instant? {
        channels.values.compactMap { channel in
            switch channel.state {
            case .waiting(let time): time
            case .registered: channel.sent == channel.wanted ? nil : channel.sentAt + Self.updatePause
            case .idle, .opening, .adding: nil
            }
        }.min()
    }

    // MARK: What is wanted

    /// - Returns: False when no more channels can be announced.
    mutating func announce(
        _ announcement: NearbyAnnouncement, port: UInt16, at now: Instant, _ tickets: inout Tickets,
        _ actions: inout [Action]
    ) -> Bool {
        let id = announcement.channel
        changes += 1
        guard var channel = channels[id] else {
            guard channels.count < Self.channelsMaximum else { return false }
            channels[id] = Channel(wanted: announcement, port: port)
            begin(id, &tickets, &actions)
            return true
        }
        let isAnother =
            channel.wanted.name != announcement.name || channel.wanted.pin != announcement.pin
            || channel.wanted.host != announcement.host || channel.port != port
        channel.wanted = announcement
        channel.port = port
        if isAnother { channel.number = 1 }
        channels[id] = channel
        if isAnother {
            end(id, &actions)
            begin(id, &tickets, &actions)
        } else {
            update(id, at: now, &actions)
        }
        return true
    }

    mutating func withdraw(_ id: ChannelID, _ actions: inout [Action]) {
        guard channels[id] != nil else { return }
        changes += 1
        end(id, &actions)
        channels[id] = nil
        if channels.isEmpty { refusal = nil }
    }

    // MARK: What Avahi does

    mutating func daemonCame(_ tickets: inout Tickets, _ actions: inout [Action]) {
        isThere = true
        hostName = nil
        refusal = nil
        for id in ids {
            channels[id]?.number = 1
            channels[id]?.failures = RetryPause()
            begin(id, &tickets, &actions)
        }
    }

    mutating func daemonLeft() {
        isThere = false
        refusal = nil
        // Its objects have gone with it.
        for id in ids {
            channels[id]?.state = .idle
            channels[id]?.isEstablished = false
        }
    }

    /// The host's name is part of what is announced. It changes when another machine of the network has it.
    mutating func hostNamed(_ name: String, _ tickets: inout Tickets, _ actions: inout [Action]) {
        defer { hostName = name }
        guard let hostName, hostName != name else { return }
        for id in ids {
            end(id, &actions)
            begin(id, &tickets, &actions)
        }
    }

    /// - Returns: False when no channel waits for the group.
    mutating func opened(
        _ ticket: UInt64, _ path: DBusObjectPath, at now: Instant, _ actions: inout [Action]
    ) -> Bool {
        guard let id = id(ofTicket: ticket), let channel = channels[id] else { return false }
        channels[id]?.state = .adding(ticket, path)
        channels[id]?.sent = channel.wanted
        channels[id]?.sentAt = now
        actions.append(.register(path, offer(channel), ticket: ticket))
        return true
    }

    /// The service has been added to its group, and the group committed.
    mutating func registered(_ ticket: UInt64, at now: Instant, _ actions: inout [Action]) {
        guard let id = id(ofTicket: ticket), case .adding(_, let path) = channels[id]?.state else { return }
        channels[id]?.state = .registered(ticket, path)
        update(id, at: now, &actions)
    }

    /// Avahi refused what was asked under this ticket.
    mutating func refused(
        _ ticket: UInt64, isCollision: Bool, reason: String, at now: Instant, _ tickets: inout Tickets,
        _ actions: inout [Action]
    ) {
        guard let id = id(ofTicket: ticket) else { return }
        if isCollision { return collided(id, at: now, &tickets, &actions) }
        fail(id, reason, at: now, &actions)
    }

    /// - Returns: False when no channel has the group.
    mutating func groupChanged(
        _ path: DBusObjectPath, _ state: Avahi.GroupState, reason: String, at now: Instant, _ tickets: inout Tickets,
        _ actions: inout [Action]
    ) -> Bool {
        guard let id = ids.first(where: { self.path(of: $0) == path }), let channel = channels[id] else { return false }
        switch state {
        case .uncommitted: break
        case .registering: channels[id]?.isEstablished = false
        case .established:
            channels[id]?.failures = RetryPause()
            refusal = nil
            guard !channel.isEstablished else { break }
            channels[id]?.isEstablished = true
            actions.append(.announced(id, instance: offer(channel).instance))
        case .collision: collided(id, at: now, &tickets, &actions)
        case .failure: fail(id, reason, at: now, &actions)
        }
        return true
    }

    mutating func handleTimeout(at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]) {
        for id in ids {
            if case .waiting(let time) = channels[id]?.state, time <= now {
                channels[id]?.state = .idle
                begin(id, &tickets, &actions)
            }
            update(id, at: now, &actions)
        }
    }

    // MARK: Steps

    /// In an order that is the same in every run.
    private var ids: [ChannelID] { channels.keys.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) } }

    private func id(ofTicket ticket: UInt64) -> ChannelID? {
        channels.first { _, channel in
            switch channel.state {
            case .opening(ticket), .adding(ticket, _), .registered(ticket, _): true
            default: false
            }
        }?.key
    }

    private func path(of id: ChannelID) -> DBusObjectPath? {
        switch channels[id]?.state {
        case .adding(_, let path), .registered(_, let path): path
        default: nil
        }
    }

    private func offer(_ channel: Channel) -> AvahiOffer {
        AvahiOffer(
            instance: Self.instance(
                channel.wanted.name, tag: Self.tag(channel.wanted), number: channel.number),
            host: hostName, port: channel.port, txt: channel.wanted.txt)
    }

    private mutating func begin(_ id: ChannelID, _ tickets: inout Tickets, _ actions: inout [Action]) {
        guard isThere, case .idle = channels[id]?.state else { return }
        let ticket = tickets.next()
        channels[id]?.state = .opening(ticket)
        actions.append(.open(.group, ticket: ticket))
    }

    private mutating func end(_ id: ChannelID, _ actions: inout [Action]) {
        if let path = path(of: id) { actions.append(.free(.group, path)) }
        channels[id]?.state = .idle
        channels[id]?.isEstablished = false
    }

    private mutating func update(_ id: ChannelID, at now: Instant, _ actions: inout [Action]) {
        guard let channel = channels[id], case .registered(let ticket, let path) = channel.state,
            channel.sent != channel.wanted, channel.sentAt + Self.updatePause <= now
        else { return }
        channels[id]?.sent = channel.wanted
        channels[id]?.sentAt = now
        actions.append(.update(path, offer(channel), ticket: ticket))
    }

    private mutating func collided(
        _ id: ChannelID, at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]
    ) {
        end(id, &actions)
        let number = (channels[id]?.number ?? 0) + 1
        channels[id]?.number = number
        // Somebody who takes every name costs a name now and then.
        if number % Self.namesAtOnce == 1, let pause = channels[id]?.failures.next() {
            channels[id]?.state = .waiting(now + pause)
        } else {
            begin(id, &tickets, &actions)
        }
    }

    private mutating func fail(_ id: ChannelID, _ reason: String, at now: Instant, _ actions: inout [Action]) {
        end(id, &actions)
        refusal = reason
        if let pause = channels[id]?.failures.next() { channels[id]?.state = .waiting(now + pause) }
    }

    /// The tag of a channel in the name of an instance, the same for every host.
    static func tag(_ channel: ChannelID, _ pin: PublicKeyPin) -> String {
        Base64URL.encode(sha256(channel.bytes + pin.bytes).prefix(6))
    }

    /// What stands for a channel and its host in the name of an instance. Two machines have different ones.
    static func tag(_ announcement: NearbyAnnouncement) -> String {
        tag(announcement.channel, announcement.pin) + "\(announcement.host)"
    }

    /// The name of the instance on the network: the channel's, cut so that it fits with the tag and the number.
    static func instance(_ name: DisplayName, tag: String, number: Int) -> String {
        let suffix = " \(tag)" + (number == 1 ? "" : " #\(number)")
        let room = Avahi.instanceBytesMaximum - suffix.utf8.count
        var cut = ""
        for character in name.text {
            guard cut.utf8.count + character.utf8.count <= room else { break }
            cut.append(character)
        }
        guard cut.isEmpty else { return cut + suffix }
        // One character of many parts.
        for scalar in name.text.unicodeScalars {
            guard cut.utf8.count + UTF8.width(scalar) <= room else { break }
            cut.unicodeScalars.append(scalar)
        }
        return cut + suffix
    }
}

/// What Avahi is to announce.
struct AvahiOffer: Hashable, Sendable {
    var instance: String
    /// The name of this machine from Avahi; nil: not known yet.
    var host: String?
    var port: UInt16
    var txt: [[UInt8]]
}

/// Numbers for requests to Avahi, so that answers to outdated requests are recognised.
struct Tickets {
    private var last: UInt64 = 0

    mutating func next() -> UInt64 {
        last += 1
        return last
    }
}

/// The pauses before what failed is tried again: 1 s, doubled up to a minute.
struct RetryPause {
    static let longest = Duration.seconds(60)
    private var pause = Duration.seconds(1)

    mutating func next() -> Duration {
        defer { pause = min(pause * 2, Self.longest) }
        return pause
    }
}
