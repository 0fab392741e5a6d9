// The text forms of the values in org.pttd's arguments and properties.
import DBus
import PushToTalkCore

/// Whose the sound of a channel is: `Media` of `JoinChannel`, and of the channel's properties.
public enum ChannelMedia: String, Hashable, Sendable, Codable, CaseIterable {
    /// `pttd` captures and plays.
    case pttd
    /// The program that joins captures and plays; `pttd` activates the session, and plays the tones.
    case application
}

/// A value that travels by the name of its case.
public protocol BusWord: CaseIterable {}

extension BusWord {
    /// The name of the case.
    public var busName: String { "\(self)" }
    /// The value of this name; nil when none has it.
    public init?(busName: String) {
        guard let value = Self.allCases.first(where: { $0.busName == busName }) else { return nil }
        self = value
    }
}

/// "halfDuplex", "fullDuplex" or "listenOnly".
extension PTTransmissionMode: BusWord {}

/// "ready", "connecting" or "unavailable".
extension PTServiceStatus: BusWord {}

extension PTImage {
    /// As the option `Image`: `s` for an icon's name, `ay` for a PNG or JPEG file.
    public var busValue: DBusValue {
        switch content {
        case .themedIcon(let name): .string(name)
        case .png(let bytes), .jpeg(let bytes): .bytes(bytes)
        }
    }

    /// The image of an option `Image`.
    ///
    /// - Throws: `DBusErrorReply` (`InvalidArgs`, `LimitsExceeded`) that says what is wrong and what would be right.
    public init(busValue: DBusValue) throws(DBusErrorReply) {
        let value = busValue.unwrapped
        do throws(Invalid) {
            switch value {
            case .string(let name):
                try self.init(validatingIconName: name)
                return
            case .bytes(let bytes):
                try self.init(validating: bytes)
                return
            default: break
            }
        } catch {
            if case .tooLarge = error { throw .limitsExceeded("'Image': \(error)") }
            throw .invalidArguments("'Image': \(error)")
        }
        throw .invalidArguments(
            "'Image' is of type '\(value.type)'; give 's' (an icon's name) or 'ay' (a PNG or JPEG file)")
    }
}

/// A lock that somebody holds against push-to-talk while they have the audio; an entry of `ListInhibitors`.
public struct Inhibitor: Hashable, Sendable, Codable {
    /// What it locks: "call".
    public var what: String
    /// The program that holds it, for people.
    public var who: String
    /// Why, for people.
    public var why: String
    /// The process that took it.
    public var processID: UInt32

    /// A lock.
    public init(what: String, who: String, why: String, processID: UInt32) {
        self.what = what
        self.who = who
        self.why = why
        self.processID = processID
    }

    /// `(sssu)`.
    public static let dbusType = DBusType.structure([.string, .string, .string, .uint32])

    /// As the structure `(sssu)`.
    public var busValue: DBusValue { .structure([.string(what), .string(who), .string(why), .uint32(processID)]) }

    /// From a structure `(sssu)`; nil for anything else.
    public init?(busValue: DBusValue) {
        guard let fields = busValue.structureValue, fields.count == 4,
            case .string(let what) = fields[0], case .string(let who) = fields[1], case .string(let why) = fields[2],
            case .uint32(let process) = fields[3]
        else { return nil }
        self.init(what: what, who: who, why: why, processID: process)
    }
}
