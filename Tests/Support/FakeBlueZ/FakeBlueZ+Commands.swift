// The commands that steer buttons, adapter and daemon: one line in, one line out.
import MonotonicTime

extension FakeBlueZ {
    /// Carries out a command and answers `ok …` or `err …`.
    ///
    ///     NAME press | release | notify HEX | state | drop | vanish | adv on|off | battery N | forget
    ///     NAME abort N       the next N links break while they are set up
    ///     NAME flap          ServicesResolved goes away and comes back, with its objects
    ///     NAME pairing ok | unanswered | hang | hangup | vanish    what becomes of the next pairings
    ///     NAME flood N       N values as fast as they go, pressed and released in turn; the last one is released
    ///     NAME dial | hangup a classic device connects its serial port by itself, or ends it
    ///     NAME record N      the next N attempts find no record of the port
    ///     adapter on | off | add | remove
    ///     daemon start | stop | restart
    ///
    /// `press`, `release` and `notify` answer with `t=`, the monotonic nanoseconds at which they were done.
    public func perform(_ line: String) async -> String {
        let words = line.split(separator: " ").map(String.init)
        guard words.count >= 2 else { return "err a command has at least two words" }
        do {
            switch words[0] {
            case "adapter": return try await adapterCommand(words[1])
            case "daemon": return try await daemonCommand(words[1])
            default:
                guard peripherals[words[0]] != nil else { return "err no peripheral \(words[0])" }
                return await buttonCommand(words[0], words[1], words.dropFirst(2).first)
            }
        } catch {
            return "err \(error)"
        }
    }

    /// Whether any client has a discovery on.
    public var isDiscovering: Bool { !discoverers.isEmpty }

    private func adapterCommand(_ command: String) async throws -> String {
        switch command {
        case "on": try await setAdapterPowered(true)
        case "off": try await setAdapterPowered(false)
        case "add": try await setAdapterPresent(true)
        case "remove": try await setAdapterPresent(false)
        default: return "err unknown command adapter \(command)"
        }
        return "ok present=\(hasAdapter ? 1 : 0) powered=\(isPowered ? 1 : 0)"
    }

    private func daemonCommand(_ command: String) async throws -> String {
        switch command {
        case "start": try await start()
        case "stop": await stop()
        case "restart":
            await stop()
            try await start()
        default: return "err unknown command daemon \(command)"
        }
        return "ok"
    }

    private func buttonCommand(_ name: String, _ command: String, _ argument: String?) async -> String {
        guard let profile = peripherals[name]?.profile else { return "err no peripheral \(name)" }
        switch command {
        case "press": return state(name, at: await notify(name, profile.pressed))
        case "release": return state(name, at: await notify(name, profile.released))
        case "notify":
            guard let value = argument.flatMap(Self.bytes) else { return "err notify HEX" }
            return state(name, at: await notify(name, value))
        case "battery":
            guard let value = argument.flatMap({ UInt8($0) }), value <= 100 else { return "err battery 0…100" }
            guard await setBattery(name, value) else { return "err \(name) has no battery service" }
        case "drop": await breakLink(name, advertisesAgain: true)
        case "vanish": await breakLink(name, advertisesAgain: false)
        case "adv":
            guard argument == "on" || argument == "off" else { return "err adv on|off" }
            peripherals[name]?.advertises = argument == "on"
            hear(name)
        case "abort":
            guard let count = argument.flatMap({ Int($0) }), (0...1000).contains(count) else { return "err abort N" }
            peripherals[name]?.linksToAbort = count
        case "flap": await flap(name)
        case "pairing":
            guard let behaviour = argument.flatMap({ PairBehaviour(rawValue: $0) }) else { return "err pairing HOW" }
            peripherals[name]?.pairing = behaviour
        case "flood":
            guard let count = argument.flatMap({ Int($0) }), (1...1_000_000).contains(count) else {
                return "err flood N"
            }
            for number in (0..<count).reversed() {
                _ = await notify(name, number % 2 == 1 ? profile.pressed : profile.released)
            }
        case "dial": guard await dialSerial(name) else { return "err \(name) is not taken" }
        case "hangup": hangUp(name)
        case "record":
            guard let count = argument.flatMap({ Int($0) }), (0...1000).contains(count) else { return "err record N" }
            setMissingRecords(count, of: name)
        // The simulated buttons keep no keys.
        case "forget", "state": break
        default: return "err unknown command \(command)"
        }
        return state(name, at: nil)
    }

    private func state(_ name: String, at time: Instant?) -> String {
        guard let peripheral = peripherals[name], let record = records[name] else { return "err no peripheral \(name)" }
        let stamp = time.map { "t=\($0.nanoseconds) " } ?? ""
        let subscribers = peripheral.isLinked && record.areServicesResolved ? record.subscribers.count : 0
        return "ok \(stamp)connections=\(peripheral.isLinked ? 1 : 0) advertising=\(peripheral.isAdvertising ? 1 : 0) "
            + "subscribers=\(subscribers)"
    }

    private static func bytes(_ hex: String) -> [UInt8]? {
        let digits = Array(hex.utf8)
        guard digits.count % 2 == 0, digits.count <= 1024 else { return nil }
        var result: [UInt8] = []
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let byte = UInt8(String(decoding: digits[index...index + 1], as: UTF8.self), radix: 16) else {
                return nil
            }
            result.append(byte)
        }
        return result
    }
}
