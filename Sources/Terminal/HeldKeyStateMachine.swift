// A held key seen through a terminal: bytes and time in, presses and releases out. Pure.
import MonotonicTime

/// Turns what a terminal sends while a key is held into one press and one release.
///
/// A terminal with the kitty keyboard protocol (progressive enhancement flag 2, "report event types") reports releases.
/// All other terminals only repeat the character, so the key counts as released when the repeats stop. The first repeat
/// comes after the keyboard's delay, so a tap is recognised only after that delay.
///
/// Space is the talk key; `q`, Escape, Ctrl-C and Ctrl-D end.
public struct HeldKeyStateMachine: Sendable {
    /// What the user did.
    public enum Output: Equatable, Sendable {
        /// The talk key went down.
        case pressed
        /// The talk key came up, or is taken to have.
        case released
        /// The user wants to leave.
        case quit
    }

    /// How long the first repeat is waited for: X11's default delay is 660 ms, Linux consoles' 250 ms.
    public static let firstRepeatLimit = Duration.milliseconds(750)
    /// How long a further repeat is waited for: the slowest usual rate is 10.9 a second.
    public static let nextRepeatLimit = Duration.milliseconds(200)
    /// The longest escape sequence that is collected; a longer one is dropped.
    public static let sequenceLimit = 32
    /// Ctrl among the modifiers of the kitty keyboard protocol.
    private static let controlModifier = 4

    private var held = false
    private var releasesAreTold = false
    private var sequence: [UInt8] = []
    /// When the key counts as released unless it repeats; nil while releases are told or nothing is held.
    public private(set) var nextDeadline: Instant?

    /// A machine for a terminal that has just been set to raw mode.
    public init() {}

    /// Bytes from the terminal.
    public mutating func handle(_ bytes: [UInt8], at now: Instant) -> [Output] {
        var output: [Output] = []
        for (index, byte) in bytes.enumerated() {
            if sequence.isEmpty {
                if byte == 0x1B {
                    // A lone escape is the key; more bytes in the same read make it a sequence.
                    if index == bytes.count - 1 { output.append(.quit) } else { sequence = [byte] }
                } else {
                    output += character(byte, at: now)
                }
            } else {
                sequence.append(byte)
                let ended = sequence.count > 2 ? (0x40...0x7E).contains(byte) : byte != UInt8(ascii: "[")
                if ended {
                    output += escape(sequence, at: now)
                    sequence = []
                } else if sequence.count > Self.sequenceLimit {
                    sequence = []
                }
            }
        }
        return output
    }

    /// Time passed; call it at `nextDeadline`.
    public mutating func handleTimeout(at now: Instant) -> [Output] {
        guard let deadline = nextDeadline, deadline <= now else { return [] }
        return release()
    }

    private mutating func character(_ byte: UInt8, at now: Instant) -> [Output] {
        switch byte {
        case UInt8(ascii: " "): press(at: now)
        case 0x03, 0x04, UInt8(ascii: "q"): [.quit]
        default: []
        }
    }

    /// `CSI 32 ; 1 : event u`, event 1 press, 2 repeat, 3 release (kitty keyboard protocol). The second number is 1 and the modifiers,
    /// among which are Caps Lock (64) and Num Lock (128) while they are on.
    private mutating func escape(_ sequence: [UInt8], at now: Instant) -> [Output] {
        guard sequence.last == UInt8(ascii: "u"), sequence.count >= 4 else { return [] }
        let fields = sequence[2..<(sequence.count - 1)].split(separator: UInt8(ascii: ";"))
        guard let key = fields.first.flatMap({ Int(String(decoding: $0, as: UTF8.self)) }) else { return [] }
        let details = fields.dropFirst().first?.split(separator: UInt8(ascii: ":")) ?? []
        let isRelease = details.dropFirst().first?.first == UInt8(ascii: "3")
        let modifiers = details.first.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 1
        let isControl = (max(modifiers, 1) - 1) & Self.controlModifier != 0
        releasesAreTold = true
        nextDeadline = nil
        switch key {
        case 32: return isRelease ? release() : press(at: now)
        case 27, 113: return isRelease ? [] : [.quit]
        case 99, 100: return isControl && !isRelease ? [.quit] : []
        default: return []
        }
    }

    private mutating func press(at now: Instant) -> [Output] {
        if !releasesAreTold { nextDeadline = now + (held ? Self.nextRepeatLimit : Self.firstRepeatLimit) }
        guard !held else { return [] }
        held = true
        return [.pressed]
    }

    private mutating func release() -> [Output] {
        nextDeadline = nil
        guard held else { return [] }
        held = false
        return [.released]
    }
}
