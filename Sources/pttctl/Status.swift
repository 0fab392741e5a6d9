// pttctl status: the channel and the accessories at this moment.
import ArgumentParser
import FoundationEssentials
import PTTBus
import Terminal

/// `pttctl status`.
struct Status: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Show the channel, who is speaking, and the accessories.")

    @OptionGroup var options: BusOptions
    @Flag(help: "Print JSON, for scripts.") var json = false
    // As the default sub-command it is given whatever names none.
    @Argument(help: .hidden) var others: [String] = []

    func validate() throws {
        guard let other = others.first else { return }
        throw ValidationError(
            CommandLine.arguments.contains("status")
                ? "status takes no argument; leave '\(other)' out."
                : "there is no sub-command '\(other)'; 'pttctl --help' lists them.")
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            let snapshot = await daemon.snapshot
            if json {
                Console.say(try jsonText(StatusDocument(snapshot)))
            } else {
                for line in Self.lines(snapshot) { Console.say(line.plain(limit: 1_024)) }
            }
        }
    }

    static func lines(_ snapshot: DaemonSnapshot) -> [String] {
        var lines: [String] = []
        if let (_, channel) = snapshot.activeChannel {
            lines.append("Channel      \(channel.name) (\(channel.uuid))")
            lines.append("Service      \(service(channel, snapshot.manager))")
            if !channel.path.isEmpty { lines.append("Path         \(path(channel))") }
            lines.append("Mode         \(ModeName.text(channel.transmissionMode))")
            if !channel.owner.isEmpty { lines.append("Joined by    \(channel.owner)") }
            lines.append("Now          \(doing(channel))")
        } else {
            lines.append("Channel      none joined")
        }
        let manager = snapshot.manager
        if !manager.microphoneProblem.isEmpty { lines.append("Microphone   \(manager.microphoneProblem)") }
        if !manager.speakerProblem.isEmpty { lines.append("Speaker      \(manager.speakerProblem)") }
        if !manager.restorationProblem.isEmpty { lines.append("Restart      \(manager.restorationProblem)") }
        if !snapshot.manager.call.isEmpty { lines.append("Call         \(snapshot.manager.call)") }
        let accessories = snapshot.accessories.sorted { $0.key < $1.key }.map(\.value)
        if accessories.isEmpty { lines.append("Accessories  none configured") }
        for (index, accessory) in accessories.enumerated() {
            lines.append((index == 0 ? "Accessories  " : "             ") + AccessoryList.line(accessory))
            if !accessory.sound.isEmpty { lines.append("             sound: \(accessory.sound)") }
            if !accessory.problem.isEmpty { lines.append("             \(accessory.problem)") }
        }
        return lines
    }

    /// The link's status. "ready" alone is said only where sound works, too.
    static func service(_ channel: ChannelProperties, _ manager: ManagerProperties) -> String {
        let problems = [manager.speakerProblem, manager.microphoneProblem]
        guard problems.contains(where: { !$0.isEmpty }) else {
            let (status, detail) = (channel.serviceStatus, channel.serviceStatusDetail)
            // "connecting: connecting to the relay" says it twice.
            return detail.isEmpty ? status : detail.hasPrefix(status) ? detail : "\(status): \(detail)"
        }
        let status = channel.serviceStatus == "ready" ? "connected" : channel.serviceStatus
        let sound =
            switch (manager.speakerProblem.isEmpty, manager.microphoneProblem.isEmpty) {
            case (true, _): "but nothing can be said"
            case (false, true): "but nothing can be heard"
            case (false, false): "but nothing can be heard, nor said"
            }
        let isOther = !channel.serviceStatusDetail.isEmpty && !problems.contains(channel.serviceStatusDetail)
        return "\(status), \(sound)" + (isOther ? ": \(channel.serviceStatusDetail)" : "")
    }

    /// How the relay is reached, and why not by QUIC.
    static func path(_ channel: ChannelProperties) -> String {
        channel.pathReason.isEmpty ? channel.path : "\(channel.path) (\(channel.pathReason))"
    }

    static func doing(_ channel: ChannelProperties) -> String {
        var parts: [String] = []
        if channel.queuePosition > 0 { parts.append("waiting for the floor, place \(channel.queuePosition)") }
        if channel.transmitting { parts.append("transmitting (\(channel.transmitSource))") }
        if channel.inputLevel > ChannelProperties.inputLevelOff {
            parts.append("microphone \(channel.inputLevel) dBFS")
        }
        if let last = channel.speakers.last {
            let others = channel.speakers.dropLast().joined(separator: ", ")
            parts.append(others.isEmpty ? "\(last) is speaking" : "\(others) and \(last) are speaking")
        }
        return parts.isEmpty ? "nobody is speaking" : parts.joined(separator: ", ")
    }
}

/// The shape of `pttctl status --json`.
struct StatusDocument: Codable {
    var version: String
    /// What uses the audio instead of push-to-talk; empty if nothing does.
    var call: String
    /// Why the microphone, or the speaker, cannot be used; empty while it can.
    var microphoneProblem: String
    var speakerProblem: String
    /// Why a restart would join another channel than the active one; empty while it would not.
    var restorationProblem: String
    /// The UUID of the channel that is joined; absent while there is none.
    var activeChannel: String?
    var channels: [ChannelProperties]
    var accessories: [AccessoryProperties]

    init(_ snapshot: DaemonSnapshot) {
        version = snapshot.manager.version
        call = snapshot.manager.call
        microphoneProblem = snapshot.manager.microphoneProblem
        speakerProblem = snapshot.manager.speakerProblem
        restorationProblem = snapshot.manager.restorationProblem
        activeChannel = snapshot.activeChannel?.properties.uuid
        channels = snapshot.channels.sorted { $0.key < $1.key }.map(\.value)
        accessories = snapshot.accessories.sorted { $0.key < $1.key }.map(\.value)
    }
}

/// `value` as one line of JSON with sorted keys. What a terminal would take for more than signs is escaped.
func jsonText(_ value: some Encodable) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let text = String(decoding: try encoder.encode(value), as: UTF8.self)
    guard text.unicodeScalars.contains(where: \.isTerminalControl) else { return text }
    var result = ""
    for scalar in text.unicodeScalars {
        guard scalar.isTerminalControl else {
            result.unicodeScalars.append(scalar)
            continue
        }
        // Beyond 0xFFFF JSON wants surrogates.
        for unit in String(scalar).utf16 {
            let digits = String(unit, radix: 16)
            result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
    }
    return result
}
