// The devices that a scan found: their order, their description, and their changes. Pure.
import PTTBus
import Terminal
import Vocabulary

/// What an installer looks for first.
enum ScanRank: Int, Comparable {
    case recognised, accessory, refused, named, nameless

    static func < (a: ScanRank, b: ScanRank) -> Bool { a.rawValue < b.rawValue }
}

extension DiscoveredDevice {
    /// Where it stands in the list.
    var rank: ScanRank {
        if accessory != nil { return .accessory }
        if refusal != nil { return .refused }
        if profile != nil { return .recognised }
        return name.isEmpty ? .nameless : .named
    }

    /// The strength in steps, 0 (not in sight) to 4: beside the machine it is about -40 dBm, at the far end of a house -90.
    var bars: Int {
        guard let signalStrength else { return 0 }
        return signalStrength >= -55 ? 4 : signalStrength >= -67 ? 3 : signalStrength >= -80 ? 2 : 1
    }

    /// The steps as a picture, four columns.
    var barsText: String { String("▂▄▆█".prefix(bars)) + String(repeating: " ", count: 4 - bars) }

    /// Its name, for people.
    var nameText: String { name.isEmpty ? "(no name)" : name.plain(limit: 64) }

    /// What it is, or why it cannot be used.
    var verdict: String {
        let title = (profileTitle ?? profile ?? "").plain(limit: 80)
        return switch rank {
        case .accessory:
            "is the accessory '\((accessory ?? "").plain(limit: 64))' already" + (title.isEmpty ? "" : " (\(title))")
        case .refused: "no talk button: \((refusal ?? "").plain(limit: 300))"
        case .recognised: title
        case .named, .nameless: "no profile matches (yet)"
        }
    }

    /// Whether something but the exact strength is different.
    func differs(from old: DiscoveredDevice) -> Bool {
        var same = old
        // Coming into sight, or going, is news.
        if (signalStrength == nil) == (old.signalStrength == nil) { same.signalStrength = signalStrength }
        return same != self
    }
}

/// The devices of one scan.
struct ScanList {
    /// What happened to a device.
    enum News: String, Encodable {
        case found, changed, lost
    }

    /// Devices that are kept; further ones are only counted.
    static let devicesMax = 1_024

    private(set) var devices: [String: DiscoveredDevice] = [:]
    private(set) var unkept = 0

    /// What is new about it; nil when nothing but the exact strength is.
    mutating func found(_ device: DiscoveredDevice) -> News? {
        guard let old = devices[device.address] else {
            guard devices.count < Self.devicesMax else {
                unkept += 1
                return nil
            }
            devices[device.address] = device
            return .found
        }
        devices[device.address] = device
        return device.differs(from: old) ? .changed : nil
    }

    /// Removes a device that is no longer known. Returns it, or nil if it was never known.
    mutating func lost(_ address: String) -> DiscoveredDevice? { devices.removeValue(forKey: address) }

    /// By what an installer looks for, then by steps of strength, so that they do not dance, then by name and address.
    var sorted: [DiscoveredDevice] {
        devices.values.sorted { a, b in
            if a.rank != b.rank { return a.rank < b.rank }
            if a.bars != b.bars { return a.bars > b.bars }
            return a.name == b.name ? a.address < b.address : a.name < b.name
        }
    }

    /// Whether a device in sight could be added.
    var hasCandidate: Bool { devices.values.contains { $0.rank == .recognised && $0.signalStrength != nil } }

    /// The line of one device.
    static func line(_ device: DiscoveredDevice) -> String {
        let strength = device.signalStrength.map { "\($0)" } ?? "–"
        return "\(device.barsText) \(String(repeating: " ", count: max(0, 4 - strength.count)))\(strength)  "
            + "\(device.nameText.fitted(20))  \(device.address.plain(limit: 32).fitted(17))  \(device.verdict)"
    }

    /// The lines of a device on a terminal with `columns` columns: one line, or more to say why it cannot be used.
    static func lines(_ device: DiscoveredDevice, columns: Int) -> [String] {
        guard device.rank == .refused else { return [line(device)] }
        let indent = 52
        let reason = device.verdict.wrapped(max(20, columns - indent - 1), limit: 4)
        let first = line(device).dropLast(device.verdict.count) + reason[0]
        return [String(first)] + reason.dropFirst().map { String(repeating: " ", count: indent) + $0 }
    }

    /// What a terminal shows, no more than fits. Devices that have neither name nor profile only when `all`.
    func lines(size: TerminalSize, all: Bool, hints: [String]) -> [String] {
        let shown = sorted.filter { all || $0.rank != .nameless }
        let hidden = devices.count + unkept - shown.count
        // The head, the count below, and the hints.
        let space = max(1, size.rows - 2 - hints.count)
        var lines: [String] = []
        var fitting = 0
        for device in shown {
            let its = Self.lines(device, columns: size.columns)
            guard lines.count + its.count <= space else { break }
            lines += its
            fitting += 1
        }
        var rest: [String] = []
        if fitting < shown.count { rest.append("\(shown.count - fitting) more than the screen shows") }
        if hidden > 0 { rest.append("\(hidden) without a name or a matching profile (--all shows them)") }
        if !rest.isEmpty { lines.append("and \(rest.joined(separator: ", "))") }
        return ["SIGNAL dBm  NAME                  ADDRESS            WHAT IT IS"] + lines + hints
    }

    /// A line of news for a pipe.
    static func line(_ news: News, _ device: DiscoveredDevice) -> String {
        let strength = device.signalStrength.map { "\($0) dBm" } ?? "not in range"
        return
            "\(news.rawValue)\t\(device.address.plain(limit: 32))\t\(strength)\t\(device.nameText)\t\(device.verdict)"
    }
}
