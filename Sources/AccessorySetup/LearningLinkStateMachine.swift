// Getting to hear everything that a Bluetooth device tells: found, connected, and every characteristic and stream of it opened.
import Accessories
import BlueZ
import MonotonicTime

/// The rules of the link to a device that is being learned. How long all of it may take is `LearningStateMachine`'s.
struct LearningLinkStateMachine: Sendable {
    /// Characteristics may be exported a little after `ServicesResolved`.
    static let lateTime = Duration.seconds(1)
    /// The pause before the next attempt to connect.
    static let connectPause = Duration.seconds(1)
    /// Characteristics that are listened to.
    static let characteristicsMax = 48
    /// Services that say nothing about buttons: GAP, GATT, device information, HID (which the kernel reads).
    private static let silentServices: Set<BluetoothUUID> = ["1800", "1801", "180a", "1812"]

    enum Event: Sendable {
        case device(DeviceFacts)
        case deviceRemoved
        case completed(BluetoothCommand, BluetoothFailure?)
        case streamClosed(StreamKind)
        case deadline
    }

    enum Action: Equatable, Sendable {
        /// A scan is wanted, or no more.
        case scan(Bool)
        case command(BluetoothCommand)
        /// Everything that can be heard is heard from now on.
        case listening
        case lost
        /// It cannot be heard; why, and what to do.
        case failed(String)
    }

    private enum Phase: Equatable, Sendable {
        case searching
        case connecting
        case pausing(until: Instant)
        case resolving(until: Instant?)
        case pairing
        case opening
        case listening
    }

    let address: String
    private(set) var device: DeviceFacts?
    /// It was connected before, or BlueZ knew it as more than something heard.
    private(set) var wasConnected = false
    private(set) var wasKnown = false
    /// Streams that are open.
    private(set) var streams: Set<StreamKind> = []
    private var phase = Phase.searching
    private var waiting: Set<BluetoothCommand> = []
    private var refused: [BluetoothCommand] = []
    private var hasPaired = false
    private var canBeHeard = false
    /// The kernel reads it: it may be heard as an input device.
    private var isKeyboard = false

    init(address: String) { self.address = address }

    var firstActions: [Action] { [.scan(true)] }

    var nextDeadline: Instant? {
        switch phase {
        case .pausing(let until): until
        case .resolving(let until): until
        case .searching, .connecting, .pairing, .opening, .listening: nil
        }
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .device(let facts):
            if device == nil {
                wasConnected = facts.isConnected
                wasKnown = facts.isConnected || facts.isPaired || facts.isTrusted
            }
            device = facts
            return advance(at: now)
        case .deviceRemoved:
            device = nil
            let wasListening = phase == .listening
            phase = .searching
            return (wasListening ? [.lost] : []) + [.scan(true)]
        case .completed(let command, let failure): return completed(command, failure, at: now)
        case .streamClosed(let kind):
            guard streams.remove(kind) != nil, let device, phase == .listening else { return [] }
            phase = .opening
            return [.lost] + open([.openStream(device: device.id, kind)])
        case .deadline: return advance(at: now)
        }
    }

    private mutating func advance(at now: Instant) -> [Action] {
        guard let device else { return [] }
        if !device.isReachable {
            switch phase {
            case .searching:
                phase = .connecting
                return [.scan(false), .command(.connect(device: device.id))]
            case .pausing(let until) where until <= now:
                phase = .connecting
                return [.command(.connect(device: device.id))]
            // Pairing connects it.
            case .connecting, .pausing, .pairing: return []
            case .resolving, .opening, .listening:
                let wasListening = phase == .listening
                phase = .pausing(until: now + Self.connectPause)
                streams = []
                return wasListening ? [.lost] : []
            }
        }
        switch phase {
        case .searching:
            phase = .resolving(until: nil)
            return [.scan(false)] + advance(at: now)
        case .connecting, .pausing:
            phase = .resolving(until: nil)
            return advance(at: now)
        case .resolving(nil):
            guard device.servicesResolved else { return [] }
            phase = .resolving(until: now + Self.lateTime)
            return []
        case .resolving(let until?):
            guard until <= now else { return [] }
            phase = .opening
            return open(commands(device))
        case .pairing, .opening, .listening: return []
        }
    }

    private func commands(_ device: DeviceFacts) -> [BluetoothCommand] {
        var commands = device.characteristics.filter { !Self.silentServices.contains($0.service) }
            .prefix(Self.characteristicsMax).map { BluetoothCommand.startNotify(characteristic: $0.id) }
        if device.services.contains("1101") { commands.append(.openStream(device: device.id, .serialPort)) }
        if device.services.contains("111e") || device.services.contains("1108") {
            commands.append(.openStream(device: device.id, .handsFree))
        }
        return commands
    }

    private mutating func open(_ commands: [BluetoothCommand]) -> [Action] {
        isKeyboard = device.map { $0.services.contains("1812") || $0.services.contains("1124") } ?? false
        refused = []
        waiting = Set(commands)
        return commands.isEmpty ? opened() : commands.map { .command($0) }
    }

    private mutating func completed(
        _ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        switch command {
        case .connect:
            guard phase == .connecting, failure != nil || device?.isReachable == false else { return [] }
            phase = .pausing(until: now + Self.connectPause)
            return []
        case .pair:
            guard phase == .pairing else { return [] }
            phase = .opening
            guard failure == nil || failure == .inProgress else { return opened() }
            return open(refused)
        case .startNotify, .openStream:
            guard phase == .opening, waiting.remove(command) != nil else { return [] }
            switch failure {
            case nil, .inProgress:
                canBeHeard = true
                if case .openStream(_, let kind) = command { streams.insert(kind) }
            case .authentication: refused.append(command)
            default: break
            }
            return waiting.isEmpty ? opened() : []
        default: return []
        }
    }

    private mutating func opened() -> [Action] {
        if !refused.isEmpty, !hasPaired, let device, !device.isPaired {
            hasPaired = true
            phase = .pairing
            return [.command(.pair(device: device.id))]
        }
        guard canBeHeard || isKeyboard else {
            return [
                .failed(
                    refused.isEmpty
                        ? "the device has nothing that notifies and no serial port: it cannot be a talk button this way"
                        : "the device tells its buttons only when it is paired, and refused to be: put it into pairing mode"
                )
            ]
        }
        phase = .listening
        return [.listening]
    }
}
