// What happens to a fleet from outside: a list of actions with their times, as text that a person reads and edits.
import MonotonicTime
import Nearby
import RelayCluster
import RelayServer

/// Something that people, networks, devices or machines do.
public enum Verb: String, Sendable, CaseIterable {
    /// A finger holds button `n` for a time. The last one (2) has a serial port, and is there when it is held.
    case hold
    /// A finger holds the emergency control of button `n` for a time.
    case emergency
    /// A finger holds a pedal (`n` 0), or a button on a serial port (1), for a time.
    case key
    /// The pedal or the port is pulled for a time.
    case pull
    /// Notifications of button `n` are lost for a time.
    case mute
    /// Button `n` repeats its state every 200 ms for a time, as some do while they are held.
    case beat
    /// Button `n` sends a value that means nothing: the byte `value`.
    case noise
    /// Button `n` is out of reach for a time. BlueZ notices `value` ms later.
    case away
    /// bluetoothd is not there for a time.
    case bluetoothd
    /// bluetoothd is halted (SIGSTOP) for a time; what it would have told comes afterwards.
    case hang
    /// The Bluetooth adapter is off for a time.
    case adapter
    /// Caller `n` on the bus holds the talk key for a time.
    case talk
    /// The same, but it ends without letting go.
    case vanish
    /// pttd is killed (SIGKILL), and is there again after a time.
    case kill
    /// The machine sleeps for a time. pttd is told before (`value` 0), or afterwards only (1).
    case sleep
    /// A telephone call has the audio for a time.
    case call
    /// The microphone fails for a time.
    case microphone
    /// The speaker fails for a time.
    case speaker
    /// The wall clock jumps: the hours of push to talk are over for a time.
    case clock
    /// Of a hundred packets `value` are lost for a time, both ways.
    case loss
    /// Packets are late by up to `value` ms for a time, and overtake each other.
    case jitter
    /// Of a hundred packets `value` come twice for a time.
    case doubles
    /// Nothing comes from the relay for a time.
    case deaf
    /// Nothing goes to the relay for a time.
    case dumb
    /// Nothing passes either way for a time.
    case cut
    /// The machine moves to another network: at once (`value` 0), after a time on none (1), or after one that carries nothing for a
    /// time (2); or it is on none for a time, and then on the same one (3). With 4 it is on none for 45 s more.
    case move
    /// Somebody who has recorded the device's early data sends them again.
    case replay
    /// The connection to the relay is reset.
    case reset
    /// A datagram that is none of the protocol's comes from the relay's address.
    case garbage
    /// The next configured channel is wanted (`n` 0), or the one before (`n` 1).
    case channel
    /// A user joins a channel by its link, and leaves it after a time.
    case visit
    /// Program `n` joins a channel with `import PushToTalk`, and leaves it after a time. It transmits (`value` 0), dies while it does (1), is
    /// asked about pushes (2), or dies, is started for pushes, and transmits then (3).
    case program
    /// The disk is full (`value` 0), read-only (1), keeps half of what is written when pttd is killed meanwhile (2), or loses a bit (3)
    /// for a time, while a user joins a channel (`n` 1), or renames and leaves it.
    case disk
    /// Relay `n` is killed, and is there again after a time.
    case relaykill
    /// Relay `n` is halted for a time; what came meanwhile is handled afterwards.
    case relayhalt
    /// The operator of relay `n` ends it in good order and starts it again after a time. It names nobody (`value` 0), the other one as
    /// its successor (1), or the other one, which does not answer (2).
    case drain
    /// Relay `n` renews the media key.
    case renew
    /// The machine of relay `n` loses its power for a time. Of a cluster, as what follows; `n` 3 is the relay that serves.
    case relaypower
    /// Nobody can write to NATS for a time.
    case natsdown
    /// Relay `n` reaches no server of NATS for a time; or it reaches the others, and not their table (`value` 1).
    case natscut
    /// The channel's floor gets other rules: `FleetRules` number `value`, for a time.
    case rules
    /// The machine loses its power for a time, and says nothing to anybody. Of a fleet on a channel nearby, as what follows.
    case power
    /// pttd ends in good order, and is started again after a time.
    case quit
    /// A member leaves the channel, and joins it again after a time.
    case part
    /// The network falls into two parts for a time, by the bits of `value`: bit `n` is the part of device `n`.
    case split
    /// A stranger announces the channel for a time, and does not have it.
    case stranger

    /// Whether it is anything else than a press of a button that is wired or worn.
    var isTrouble: Bool {
        switch self {
        case .hold, .key, .pull: false
        default: true
        }
    }

    /// Whether it happens to a relay, and not to one device.
    var isOfRelay: Bool {
        switch self {
        case .relaykill, .relayhalt, .relaypower, .natsdown, .natscut, .drain, .renew, .rules, .split, .stranger: true
        default: false
        }
    }

    /// Whether it happens within one machine, which has to be awake for that.
    var isOnMachine: Bool {
        switch self {
        case .bluetoothd, .hang, .adapter, .talk, .vanish, .kill, .call, .clock, .channel, .visit, .program, .disk,
            .garbage, .quit, .part:
            true
        default: false
        }
    }

    /// Whether it happens to fleets with a cluster of relays only.
    var isClusterOnly: Bool {
        switch self {
        case .relaypower, .natsdown, .natscut: true
        default: false
        }
    }

    /// Whether it happens to fleets on a channel nearby only.
    var isNearbyOnly: Bool {
        switch self {
        case .power, .quit, .part, .split, .stranger: true
        default: false
        }
    }
}

/// One line of a schedule.
public struct ScheduledAction: Sendable, Hashable {
    /// Milliseconds since the start.
    public var at: Int
    /// What happens.
    public var verb: Verb
    /// Which device, from 0; without meaning for a relay.
    public var device: Int
    /// Which button, caller, direction or relay.
    public var n: Int
    /// For how long, in milliseconds.
    public var time: Int
    /// What `Verb` says of it.
    public var value: Int

    /// An action; what is left out is 0.
    public init(at: Int, _ verb: Verb, device: Int = 0, n: Int = 0, for time: Int = 0, value: Int = 0) {
        (self.at, self.verb, self.device, self.n, self.time, self.value) = (at, verb, device, n, time, value)
    }

    var duration: Duration { .milliseconds(time) }

    /// When it is over, in milliseconds.
    var end: Int {
        switch verb {
        case .away: at + time + value
        case .move where value == 4: at + time + 45_000
        case .drain: at + time + Int(SimulatedRelay.drainTime.milliseconds) + 1_000
        case .program: at + time + 500
        // Some begin a little later.
        case .disk: at + time + 200
        case .quit: at + time + Int(SuccessionStateMachine.leavingTime.milliseconds)
        default: at + time
        }
    }
}

/// The rules that the channel's floor may have, by number.
enum FleetRules {
    static let all = [
        FloorRules(), FloorRules(hasQueue: true), FloorRules(mode: .cutIn), FloorRules(mode: .fullDuplex),
        FloorRules(hasQueue: true, preemptionStep: 10),
    ]
}

/// One run: the fleet, and what happens to it.
public struct Schedule: Sendable, Hashable {
    /// From which everything that chance decides within the run is drawn.
    public var seed: UInt64
    /// How many devices there are, 2 to 4.
    public var devices: Int
    /// The floor's rules at the start.
    public var rules: Int
    /// Whether all are on a channel nearby, which they host by turns.
    public var isNearby: Bool
    /// Whether the relays are those of a cluster.
    public var isCluster: Bool
    /// In the order of their times.
    public var actions: [ScheduledAction]

    /// A schedule with all it says.
    public init(
        seed: UInt64, devices: Int, rules: Int, isNearby: Bool = false, isCluster: Bool = false,
        actions: [ScheduledAction]
    ) {
        (self.seed, self.devices, self.rules, self.actions) = (seed, devices, rules, actions)
        (self.isNearby, self.isCluster) = (isNearby, isCluster)
    }

    /// When the last action is over, in milliseconds. What happens on a machine takes longer when it sleeps meanwhile.
    var end: Int {
        (actions.map(\.end).max() ?? 0) + actions.reduce(0) { $0 + ($1.verb == .sleep ? $1.time : 0) }
            + (isCluster ? Int(SharesStateMachine.Timers().release.milliseconds) : 0)
    }
}

// MARK: Text

/// A schedule's text cannot be read.
public struct ScheduleError: Error, CustomStringConvertible {
    /// What is wrong with it.
    public let description: String
}

extension ScheduledAction: CustomStringConvertible {
    /// A line of a schedule's text.
    public var description: String {
        let seconds = "\(at / 1000)." + String(String(at % 1000 + 1000).dropFirst())
        var words = [String(repeating: " ", count: max(0, 8 - seconds.count)) + seconds, verb.rawValue]
        if !verb.isOfRelay { words.append("device=\(device)") }
        if n != 0 { words.append("n=\(n)") }
        if time != 0 { words.append("for=\(time)ms") }
        if value != 0 { words.append("value=\(value)") }
        return words.joined(separator: " ")
    }

    init(_ line: Substring) throws {
        let words = line.split(separator: " ")
        let parts = words.first?.split(separator: ".") ?? []
        guard words.count >= 2, parts.count == 2, parts[1].count == 3, let seconds = Int(parts[0]),
            let milliseconds = Int(parts[1]), let verb = Verb(rawValue: String(words[1]))
        else { throw ScheduleError(description: "not an action: '\(line)'") }
        self.init(at: seconds * 1000 + milliseconds, verb)
        for word in words.dropFirst(2) {
            let field = word.split(separator: "=")
            guard field.count == 2, let number = Int(field[1].hasSuffix("ms") ? field[1].dropLast(2) : field[1]) else {
                throw ScheduleError(description: "not a field: '\(word)' in '\(line)'")
            }
            switch field[0] {
            case "device": device = number
            case "n": n = number
            case "for": time = number
            case "value": value = number
            default: throw ScheduleError(description: "unknown field: '\(word)' in '\(line)'")
            }
        }
    }
}

extension Schedule: CustomStringConvertible {
    private var kind: String {
        isNearby ? " nearby=1" : isCluster ? " cluster=1" : ""
    }

    /// The text of the schedule, which `init(_:)` reads.
    public var description: String {
        ([
            "fleet seed=\(seed) devices=\(devices) rules=\(rules)\(kind)"
        ]
            + actions.map(\.description))
            .joined(separator: "\n") + "\n"
    }

    /// Reads the text that `description` gives. Lines that begin with `#` are comments.
    public init(_ text: String) throws {
        let lines = text.split(separator: "\n").filter { !$0.hasPrefix("#") && !$0.allSatisfy { $0 == " " } }
        var fields: [Substring: UInt64] = [:]
        guard let head = lines.first, head.hasPrefix("fleet ") else {
            throw ScheduleError(description: "a schedule begins with 'fleet seed=… devices=… rules=…'")
        }
        for word in head.split(separator: " ").dropFirst() {
            let field = word.split(separator: "=")
            guard field.count == 2, let number = UInt64(field[1]) else {
                throw ScheduleError(description: "not a field: '\(word)'")
            }
            fields[field[0]] = number
        }
        guard let seed = fields["seed"], let devices = fields["devices"], let rules = fields["rules"],
            (2...4).contains(devices), rules < UInt64(FleetRules.all.count)
        else { throw ScheduleError(description: "needs a seed, 2 to 4 devices and known rules: '\(head)'") }
        self.init(
            seed: seed, devices: Int(devices), rules: Int(rules), isNearby: fields["nearby"] == 1,
            isCluster: fields["cluster"] == 1,
            actions: try lines.dropFirst().map { try ScheduledAction($0) })
        guard actions.allSatisfy({ (0..<self.devices).contains($0.device) }) else {
            throw ScheduleError(description: "an action names a device that is not there")
        }
    }
}
