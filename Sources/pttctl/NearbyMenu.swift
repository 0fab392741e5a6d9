// The menu of channels nearby on a terminal: the selected line, the drawing, and the keys. Pure.
import PTTBus
import Terminal

/// A list in which one line is chosen.
struct NearbyMenu {
    /// What a person can press.
    enum Key: Sendable, Equatable {
        case up, down, enter, quit
    }

    private(set) var channels: [NearbyChannelDescription] = []
    private var chosenID: String?

    /// The chosen channel; nil while there is none.
    var chosen: NearbyChannelDescription? { channels.first { $0.id == chosenID } }

    /// Takes the channels as they are now. The chosen one stays so while it is there, whatever comes before it.
    mutating func update(_ new: [NearbyChannelDescription]) {
        let index = channels.firstIndex { $0.id == chosenID } ?? 0
        channels = new
        guard chosen == nil else { return }
        chosenID = channels.isEmpty ? nil : channels[min(index, channels.count - 1)].id
    }

    /// Another line is chosen; at the ends nothing changes.
    mutating func move(_ key: Key) {
        guard let index = channels.firstIndex(where: { $0.id == chosenID }) else { return }
        switch key {
        case .up: chosenID = channels[max(0, index - 1)].id
        case .down: chosenID = channels[min(channels.count - 1, index + 1)].id
        case .enter, .quit: break
        }
    }

    /// What the terminal shows, no more than fits; the chosen line is always among it.
    func lines(size: TerminalSize, problem: String) -> [String] {
        let space = max(1, size.rows - 4)
        let index = channels.firstIndex { $0.id == chosenID } ?? 0
        let first = max(0, min(index - space / 2, channels.count - space))
        var lines = ["  \("CHANNEL".fitted(28))  \("CREATED BY".fitted(20))  MEMBERS  "]
        for channel in channels.dropFirst(first).prefix(space) {
            lines.append(
                (channel.id == chosenID ? "> " : "  ") + channel.name.plain(limit: 128).fitted(28) + "  "
                    + channel.creator.plain(limit: 128).fitted(20) + "  "
                    + String("\(channel.members)".prefix(7)).fitted(7) + "  " + Self.words(channel)
                    + (channel.foundBy.contains("bluetooth") ? "  (\(NearbyList.found(channel)))" : ""))
        }
        if channels.isEmpty { lines.append("  none yet; 'pttctl nearby create NAME' makes one") }
        if channels.count > space { lines.append("  \(channels.count) channels") }
        if !problem.isEmpty { lines.append("  " + problem.plain(limit: 300)) }
        lines.append("Arrow keys choose, Enter joins, q ends.")
        return lines
    }

    private static func words(_ channel: NearbyChannelDescription) -> String {
        if channel.isOwn {
            let code = channel.code.plain(limit: 6)
            return code.isEmpty ? "hosted here" : "hosted here, code \(code.prefix(3)) \(code.suffix(3))"
        }
        return switch channel.admission {
        case "open": "open"
        case "code": "locked with a code"
        case "ask": "its creator admits"
        default: "needs a newer pttctl"
        }
    }

    /// The keys in what a terminal sent.
    static func keys(in bytes: [UInt8]) -> [Key] {
        var keys: [Key] = []
        var rest = bytes[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\r"), UInt8(ascii: "\n"): keys.append(.enter)
            case UInt8(ascii: "q"), UInt8(ascii: "Q"), 3, 4: keys.append(.quit)
            case UInt8(ascii: "k"): keys.append(.up)
            case UInt8(ascii: "j"): keys.append(.down)
            case 27:
                // CSI or SS3, then the letter of the arrow.
                guard let second = rest.first, second == UInt8(ascii: "[") || second == UInt8(ascii: "O") else {
                    continue
                }
                rest.removeFirst()
                switch rest.popFirst() {
                case UInt8(ascii: "A"): keys.append(.up)
                case UInt8(ascii: "B"): keys.append(.down)
                default: break
                }
            default: break
            }
        }
        return keys
    }
}
