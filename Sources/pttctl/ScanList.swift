// The devices that a scan found: in which order they are shown, what is said of each, and what of it is news. Pure.
import Terminal

/// A device that a scan found, as the daemon tells it.
struct ScannedDevice: Encodable, Equatable {
    var address: String
    var name = ""
    /// Its signal strength, dBm; nil while it is not in sight.
    var rssi: Int?
    /// The profile's id and title; empty when none fits (yet).
    var profile = ""
    var profileTitle = ""
    /// Why it cannot be a talk button; empty when nothing says so.
    var refusal = ""
    var paired = false
    var connected = false
    /// The name of the accessory that it is already; empty when it is none.
    var accessory = ""

    /// What an installer looks for first.
    enum Rank: Int, Comparable {
        case recognised, accessory, refused, named, nameless

        static func < (a: Rank, b: Rank) -> Bool { a.rawValue < b.rawValue }
    }

    var rank: Rank {
        if !accessory.isEmpty { return .accessory }
        if !refusal.isEmpty { return .refused }
        if !profile.isEmpty { return .recognised }
        return name.isEmpty ? .nameless : .named
    }

    /// The strength in five steps, 0 (not in sight) to 4: a hand's breadth is about -40 dBm, the far end of a house -90.
    var bars: Int {
        guard let rssi else { return 0 }
        return rssi >= -55 ? 4 : rssi >= -67 ? 3 : rssi >= -80 ? 2 : 1
    }

    /// The steps as a picture, four columns.
    var barsText: String { String("▂▄▆█".prefix(bars)) + String(repeating: " ", count: 4 - bars) }

    /// The name and address, for people.
    var nameText: String { name.isEmpty ? "(no name)" : name.plain(limit: 64) }

    /// What it is, or why it cannot be used.
    var verdict: String {
        switch rank {
        case .accessory:
            "is the accessory '\(accessory.plain(limit: 64))' already"
                + (profileTitle.isEmpty ? "" : " (\(profileTitle.plain(limit: 80)))")
        case .refused: "no talk button: \(refusal.plain(limit: 300))"
        case .recognised: (profileTitle.isEmpty ? profile : profileTitle).plain(limit: 80)
        case .named, .nameless: "no profile fits (yet)"
        }
    }

    /// Whether something but the exact strength is different.
    func differs(from old: ScannedDevice) -> Bool {
        var same = old
        // Coming into sight, or going, is news.
        if (rssi == nil) == (old.rssi == nil) { same.rssi = rssi }
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

    private(set) var devices: [String: ScannedDevice] = [:]
    private(set) var unkept = 0

    /// What is new about it; nil when nothing but the exact strength is.
    mutating func found(_ device: ScannedDevice) -> News? {
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

    /// It is no longer known; what it was, or nil when it never was.
    mutating func lost(_ address: String) -> ScannedDevice? { devices.removeValue(forKey: address) }

    /// By what an installer looks for, then by steps of strength, so that they do not dance, then by name and address.
    var sorted: [ScannedDevice] {
        devices.values.sorted { a, b in
            if a.rank != b.rank { return a.rank < b.rank }
            if a.bars != b.bars { return a.bars > b.bars }
            return a.name == b.name ? a.address < b.address : a.name < b.name
        }
    }

    /// Whether a device in sight could be added.
    var hasCandidate: Bool { devices.values.contains { $0.rank == .recognised && $0.rssi != nil } }

    /// The line of one device.
    static func line(_ device: ScannedDevice) -> String {
        let strength = device.rssi.map { "\($0)" } ?? "–"
        return "\(device.barsText) \(String(repeating: " ", count: max(0, 4 - strength.count)))\(strength)  "
            + "\(device.nameText.fitted(20))  \(device.address.plain(limit: 32).fitted(17))  \(device.verdict)"
    }

    /// What a terminal shows, at most `rows` lines. Devices that have neither name nor profile only when `all`.
    func lines(rows: Int, all: Bool, hint: String) -> [String] {
        let shown = sorted.filter { all || $0.rank != .nameless }
        let hidden = devices.count + unkept - shown.count
        // The head, the count below, and the hint.
        let space = max(1, rows - 3)
        var lines = ["SIGNAL dBm  NAME                  ADDRESS            WHAT IT IS"]
        lines += shown.prefix(space).map(Self.line)
        let more = max(0, shown.count - space)
        var rest: [String] = []
        if more > 0 { rest.append("\(more) more that do not fit here") }
        if hidden > 0 { rest.append("\(hidden) without a name, which fit no profile (--all shows them)") }
        if !rest.isEmpty { lines.append("and \(rest.joined(separator: ", "))") }
        lines.append(hint)
        return lines
    }

    /// A line of news for a pipe.
    static func line(_ news: News, _ device: ScannedDevice) -> String {
        let strength = device.rssi.map { "\($0) dBm" } ?? "not in sight"
        return
            "\(news.rawValue)\t\(device.address.plain(limit: 32))\t\(strength)\t\(device.nameText)\t\(device.verdict)"
    }
}
