// A microphone or a speaker as an installer looks for it: its stable name, what it is, and what it does. Pure.
import Glibc

/// A device that can be named in the configuration.
public struct SoundDevice: Sendable, Equatable {
    /// What gives it.
    public enum Kind: String, Sendable, Encodable {
        /// A sound card.
        case card
        /// A sound server, or what ALSA's configuration makes of one.
        case server
        /// A Bluetooth device, by BlueALSA.
        case bluetooth
    }

    /// What to write into pttd.toml. It is the same after the next start.
    public var name: String
    /// What it is, for people.
    public var title: String
    /// What gives it.
    public var kind: Kind
    /// Whether it is plugged into USB: its id may change when two equal ones are plugged.
    public var isUSB = false
    /// Whether it is a microphone.
    public var isMicrophone: Bool
    /// Whether it is a speaker.
    public var isSpeaker: Bool
    /// Why it cannot be opened; empty while it can be, or while others hold it.
    public var problems: [AudioDevice.Use: AudioError] = [:]
    /// Who holds it now. Only of cards.
    public var holders: [SoundHolder] = []
    var place: SoundCardPlace?

    /// Whether a configuration that says `text` means this device.
    public func isMeant(by text: String) -> Bool {
        let text = text.hasPrefix("alsa:") ? String(text.dropFirst(5)) : text
        if text == name { return true }
        if kind == .bluetooth {
            return Self.arguments(text).isSubset(of: Self.arguments(name)) && text.contains("DEV=")
        }
        guard let place, let meant = SoundDeviceName(text), meant.device == place.device else { return false }
        return meant.card == place.id || Int(meant.card) == place.number
    }

    /// BlueALSA's names have their arguments in any order, and those that need not be said are left out.
    private static func arguments(_ name: String) -> Set<Substring> {
        let parts = name.split(separator: ":", maxSplits: 1)
        return Set([parts.first ?? ""] + (parts.count > 1 ? parts[1].split(separator: ",") : []))
    }

    /// Whether `text` means a card by its number, which may be another one after the next plugging.
    public static func isNumbered(_ text: String) -> Bool {
        SoundDeviceName(text.hasPrefix("alsa:") ? String(text.dropFirst(5)) : text)?.isNumbered ?? false
    }
}

/// Where a device is on a card at this moment.
struct SoundCardPlace: Sendable, Equatable {
    var number: Int
    var id: String
    var device: Int
}

/// A sound card, as its control interface describes it.
struct SoundCard: Equatable {
    var number: Int
    var id: String
    var title = ""
    var isUSB = false
    /// The numbers of its devices.
    var microphones: [Int] = []
    var speakers: [Int] = []
    /// What its devices are called.
    var names: [Int: String] = [:]
    /// Why its control interface cannot be asked; then its devices are not known.
    var problem: AudioError?

    /// Its devices. The number of a device is part of the name where there are more of that direction, or where it is not the first.
    var devices: [SoundDevice] {
        if let problem {
            return [
                SoundDevice(
                    name: "plughw:CARD=\(id)", title: title, kind: .card, isUSB: isUSB, isMicrophone: true,
                    isSpeaker: true, problems: [.microphone: problem, .speaker: problem],
                    place: SoundCardPlace(number: number, id: id, device: 0))
            ]
        }
        func name(_ device: Int, of all: [Int]) -> String {
            "plughw:CARD=\(id)" + (all.count > 1 || device != 0 ? ",DEV=\(device)" : "")
        }
        var found: [SoundDevice] = []
        let all = Set(microphones + speakers).sorted()
        for device in all {
            let own = names[device] ?? ""
            let title = all.count > 1 && !own.isEmpty ? "\(title), \(own)" : title
            let microphone = microphones.contains(device) ? name(device, of: microphones) : nil
            let speaker = speakers.contains(device) ? name(device, of: speakers) : nil
            for name in [microphone, speaker == microphone ? nil : speaker].compactMap({ $0 }) {
                found.append(
                    SoundDevice(
                        name: name, title: title, kind: .card, isUSB: isUSB, isMicrophone: name == microphone,
                        isSpeaker: name == speaker, place: SoundCardPlace(number: number, id: id, device: device)))
            }
        }
        return found
    }
}

extension SoundDevice {
    /// Names of hints that are no devices: what discards all sound, and what a desktop's configuration only offers to others.
    private static let uninteresting: Set = ["null", "oss", "jack", "arcam_av", "a52", "usbstream"]

    /// The device of a hint; nil for the many names that ALSA has for a card, and for what is no device.
    init?(hint: ALSAHint) {
        let isBluetooth = hint.name.hasPrefix("bluealsa:")
        guard isBluetooth || !hint.name.contains(":"), hint.isMicrophone || hint.isSpeaker,
            !Self.uninteresting.contains(hint.name)
        else { return nil }
        let lines = hint.description.split(separator: "\n").map(String.init)
        self.init(
            name: hint.name, title: lines.first ?? "a device of ALSA's configuration",
            kind: isBluetooth ? .bluetooth : .server,
            isMicrophone: hint.isMicrophone, isSpeaker: hint.isSpeaker)
    }
}

extension SoundDevice {
    /// Takes what was found when it was opened. A name of ALSA's configuration may have one direction only, without saying so.
    mutating func take(_ found: [AudioDevice.Use: AudioError]) {
        problems.merge(found) { known, _ in known }
        guard kind == .server, name != "default", isMicrophone, isSpeaker, problems.count == 1,
            case (let use, .noSuchDevice)? = problems.first
        else { return }
        problems = [:]
        if use == .microphone { isMicrophone = false } else { isSpeaker = false }
    }

    /// Why it cannot be used, in a few words for each direction that it has; empty if it can be.
    public var problemInShort: String {
        let words = [AudioDevice.Use.microphone, .speaker].compactMap { use in
            problems[use].map { (use: use, text: $0.inShort) }
        }
        guard let first = words.first else { return "" }
        let isWhole = words.count == 2 || !(isMicrophone && isSpeaker)
        if isWhole, words.allSatisfy({ $0.text == first.text }) { return first.text }
        return words.map { "as a \($0.use == .microphone ? "microphone" : "speaker"): \($0.text)" }.joined(
            separator: "; ")
    }
}

extension AudioError {
    /// What happened, in a few words, for a list.
    public var inShort: String {
        switch self {
        case .noSuchDevice: "there is no such device"
        case .deviceBusy: "in use by another program"
        case .permissionDenied: "permission denied: add the user to the group 'audio'"
        case .deviceVanished: "its sound server does not run, or it was unplugged"
        case .unresponsive, .deviceStalled: "it does not answer"
        case .deviceSilent: "it gives no sound"
        case .unsupportedFormat: "it has no format that can be converted"
        case .device(_, _, let code): String(cString: strerror(abs(code)))
        default: description
        }
    }
}

/// Which device of which card a name means: `plughw:CARD=Headset`, `hw:1,0`, `plughw:Headset,0`.
struct SoundDeviceName: Equatable {
    /// The card's id, or its number as text.
    var card: String
    /// The device of the card.
    var device = 0

    init(card: String, device: Int = 0) {
        self.card = card
        self.device = device
    }

    /// Reads `name`; nil when it means none of a card's devices directly.
    init?(_ name: String) {
        let parts = name.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, ["hw", "plughw"].contains(parts[0]) else { return nil }
        var card: Substring?
        var device = 0
        for (index, argument) in parts[1].split(separator: ",", omittingEmptySubsequences: false).enumerated() {
            let pair = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let key = pair.count == 2 ? pair[0] : index == 0 ? "CARD" : index == 1 ? "DEV" : ""
            switch (key, pair[pair.count - 1]) {
            case ("CARD", let text): card = text
            case ("DEV", let text):
                guard let number = Int(text) else { return nil }
                device = number
            default: break
            }
        }
        guard let card, !card.isEmpty else { return nil }
        self.init(card: String(card), device: device)
    }

    /// Whether it means the card by a number, which is another one after the next plugging.
    var isNumbered: Bool { Int(card) != nil }
}
