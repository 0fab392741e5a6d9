// pttctl monitor: prints events as they happen.
import ArgumentParser
import DBus
import Glibc
import MonotonicTime
import PTTBus
import Terminal

/// `pttctl monitor`.
struct Monitor: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print events, one per line, until interrupted.",
        discussion: """
            It begins with the output of 'pttctl status', and shows a level bar on a terminal while the microphone \
            records. With --json it does neither, and each line is an object; 't' is CLOCK_MONOTONIC in nanoseconds.
            """)

    @OptionGroup var options: BusOptions
    @Flag(help: "Print JSON, one object per line.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let (events, feed) = AsyncStream.makeStream(
                of: (Instant, DaemonClient.Event).self, bufferingPolicy: .bufferingNewest(1_024))
            try await daemon.watch { feed.yield((.now, $0)) }
            if !json { for line in Status.lines(await daemon.snapshot) { Console.say(line.plain(limit: 1_024)) } }
            var bar = LevelLine()
            for await (time, event) in events {
                let happenings = Self.happenings(event)
                let size = json ? nil : TerminalSize.ofOutput
                if let size, !happenings.isEmpty { Console.draw(bar.hidden(size)) }
                for var happening in happenings {
                    happening.t = time.nanoseconds
                    Console.say(
                        json
                            ? try jsonText(happening)
                            : "\(Self.clock())  \(happening.text.plain(limit: 1_024))")
                }
                if let size, let level = Self.level(event) { Console.draw(bar.shown(level, size)) }
            }
        }
    }

    /// How loud own speech is after it; nil: that is not what it is about.
    static func level(_ event: DaemonClient.Event) -> Double? {
        switch event {
        case .changed(_, let new): new.activeChannel?.properties.inputLevel ?? ChannelProperties.inputLevelOff
        case .running(false): ChannelProperties.inputLevelOff
        case .running(true), .transmissionFailed, .accessory: nil
        }
    }

    /// Local time of day to the millisecond.
    static func clock() -> String {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return "\(clock(at: now.tv_sec)).\(String(1_000 + now.tv_nsec / 1_000_000).dropFirst())"
    }

    /// The time of day in the zone of this machine, "14:03:09".
    static func clock(at moment: time_t) -> String {
        var (moment, parts) = (moment, tm())
        guard localtime_r(&moment, &parts) != nil else { return "--:--:--" }
        return [parts.tm_hour, parts.tm_min, parts.tm_sec].map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
    }

    static func happenings(_ event: DaemonClient.Event) -> [MonitorEvent] {
        switch event {
        case .running(false): return [MonitorEvent("daemon", "pttd has left the bus")]
        case .running(true): return [MonitorEvent("daemon", "pttd is on the bus")]
        case .transmissionFailed(_, let code, let message):
            return [MonitorEvent("failed", "not transmitted: \(message)", detail: "PTChannelError \(code)")]
        case .accessory(.emergency(let isActive, let accessory, let control)):
            let name = PTTBus.accessoryID(accessory.rawValue) ?? "\(accessory)"
            return [
                MonitorEvent(
                    isActive ? "emergency" : "emergencyEnded",
                    isActive ? "EMERGENCY: \(name), control \(control)" : "the emergency of \(name) is over",
                    detail: name)
            ]
        case .accessory: return []
        case .changed(let old, let new):
            return channels(old, new) + calls(old, new) + accessories(old, new)
        }
    }

    private static func calls(_ old: DaemonSnapshot, _ new: DaemonSnapshot) -> [MonitorEvent] {
        guard old.manager.call != new.manager.call else { return [] }
        // A call that takes another's place ends nothing for push-to-talk.
        guard new.manager.call.isEmpty else {
            return [MonitorEvent("call", "silent during a call: \(new.manager.call)", detail: new.manager.call)]
        }
        return [MonitorEvent("callEnded", "the call is over: \(old.manager.call)", detail: old.manager.call)]
    }

    private static func channels(_ old: DaemonSnapshot, _ new: DaemonSnapshot) -> [MonitorEvent] {
        var result: [MonitorEvent] = []
        for (path, channel) in new.channels.sorted(by: { $0.key < $1.key }) {
            guard let before = old.channels[path] else {
                result.append(MonitorEvent("joined", "joined \(channel.name)", detail: channel.name))
                continue
            }
            if channel.serviceStatus != before.serviceStatus
                || channel.serviceStatusDetail != before.serviceStatusDetail
            {
                let detail = channel.serviceStatusDetail.isEmpty ? "" : ": \(channel.serviceStatusDetail)"
                result.append(
                    MonitorEvent("service", "service \(channel.serviceStatus)\(detail)", detail: channel.serviceStatus))
            }
            if channel.name != before.name {
                result.append(MonitorEvent("renamed", "\(before.name) is now \(channel.name)", detail: channel.name))
            }
            if channel.transmissionMode != before.transmissionMode {
                let mode = ModeName.text(channel.transmissionMode)
                result.append(MonitorEvent("mode", "mode \(mode)", detail: mode))
            }
            if channel.queuePosition != before.queuePosition {
                let place = channel.queuePosition
                if place > 0 {
                    result.append(MonitorEvent("waiting", "waiting for the floor, place \(place)", detail: "\(place)"))
                } else if !channel.transmitting {
                    result.append(MonitorEvent("waitingEnded", "no longer waiting for the floor"))
                }
            }
            if channel.transmitting != before.transmitting {
                result.append(
                    channel.transmitting
                        ? MonitorEvent(
                            "begin", "transmitting (\(channel.transmitSource))", detail: channel.transmitSource)
                        : MonitorEvent("end", "transmission ended"))
            }
            result += speakers(before.speakers, channel.speakers)
        }
        for (path, channel) in old.channels where new.channels[path] == nil {
            result.append(MonitorEvent("left", "left \(channel.name)", detail: channel.name))
        }
        return result
    }

    /// The participants that stopped or started speaking. Several may speak at once, and one may start again just after
    /// it stopped.
    private static func speakers(_ old: [String], _ new: [String]) -> [MonitorEvent] {
        let change = new.difference(from: old)
        return (change.removals + change.insertions).map { step in
            switch step {
            case .remove(_, let name, _): MonitorEvent("silent", "\(name) has finished", detail: name)
            case .insert(_, let name, _): MonitorEvent("speaking", "\(name) is speaking", detail: name)
            }
        }
    }

    private static func accessories(_ old: DaemonSnapshot, _ new: DaemonSnapshot) -> [MonitorEvent] {
        var result: [MonitorEvent] = []
        for (path, accessory) in new.accessories.sorted(by: { $0.key < $1.key }) {
            let before = old.accessories[path] ?? AccessoryProperties()
            let name = accessory.name.isEmpty ? accessory.address : accessory.name
            if accessory.ready != before.ready {
                result.append(
                    MonitorEvent("accessory", "\(name) \(accessory.ready ? "is ready" : "is not ready")", detail: name))
            }
            if accessory.held != before.held {
                result.append(
                    MonitorEvent(
                        accessory.held ? "press" : "release", "\(name) \(accessory.held ? "pressed" : "released")",
                        detail: name))
            }
            if accessory.battery != before.battery, let battery = accessory.battery {
                result.append(MonitorEvent("battery", "\(name) battery \(battery) %", detail: "\(battery)"))
            }
            if accessory.problem != before.problem, !accessory.problem.isEmpty {
                result.append(MonitorEvent("problem", "\(name): \(accessory.problem)", detail: accessory.problem))
            }
        }
        return result
    }
}

/// An event: its kind for scripts, and its text for people.
struct MonitorEvent: Encodable {
    var event: String
    var text: String
    var detail: String
    var t: Int64 = 0

    init(_ event: String, _ text: String, detail: String = "") {
        self.event = event
        self.text = text
        self.detail = detail
    }
}
