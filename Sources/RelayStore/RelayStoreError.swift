// What can be wrong with a relay's records, in words that say what to do.
import GRDB

/// Why a relay's records cannot be read or written, or do not allow what was asked.
public enum RelayStoreError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The file cannot be opened or is of no use.
    case unusable(path: String, why: String)
    /// The file is a link, or could be somebody else's.
    case unsafe(path: String, why: String)
    /// The file is no database any more, or has records that mean nothing.
    case damaged(path: String, what: String)
    /// The file was made by a later version of the program.
    case newer(path: String)
    /// A write did not reach the disk; nothing has changed.
    case notWritten(why: String)
    /// There is no such channel.
    case unknownChannel(String, known: [String])
    /// The channel's name is taken.
    case channelExists(String)
    /// There is no such member, or several whose name or beginning of the identifier it could be.
    case unknownMember(String, candidates: [String])
    /// There is no such invitation.
    case unknownInvitation(Int64)
    /// A limit is reached.
    case limit(String)
    /// The channel's media key is its members' own, or is not.
    case wrongKind(String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .unusable(let path, let why):
            return
                "\(path) cannot be used: \(why); see that this user may read and write it, and that the disk is not full"
        case .unsafe(let path, let why):
            return
                "\(path) is not opened: \(why); put the records themselves there, as a file of the user that the relay runs as"
        case .damaged(let path, let what):
            return
                "\(path) is damaged: \(what); stop the relay and put a copy of the file that is whole in its place, or move it "
                + "away and invite the members again"
        case .newer(let path):
            return "\(path) was made by a later version of pttrelay; install that one again"
        case .notWritten(let why): return "the records cannot be written (\(why)); nothing was changed"
        case .unknownChannel(let name, let known):
            let names = known.prefix(10).map { "'\($0)'" }.joined(separator: ", ")
            return "the relay has no channel '\(name)'"
                + (names.isEmpty ? "; start it with --channel" : "; it has \(names)")
        case .channelExists(let name): return "the relay has a channel '\(name)' already"
        case .unknownMember(let text, let candidates):
            guard !candidates.isEmpty else {
                return "the channel has no member '\(text)'; 'pttrelay members CHANNEL' lists them"
            }
            return "'\(text)' could be any of \(candidates.joined(separator: ", ")); give more of its identifier"
        case .unknownInvitation(let number):
            return "the channel has no open invitation \(number); 'pttrelay invite CHANNEL --list' shows them"
        case .limit(let what): return what
        case .wrongKind(let what): return what
        }
    }

    static func notWritten(_ error: any Error, path: String) -> RelayStoreError {
        switch RelayStoreError(error, path: path) {
        case .unusable(_, let why): .notWritten(why: why)
        case let other: other
        }
    }

    /// What was thrown while the file at `path` was opened or read, in words.
    init(_ error: any Error, path: String) {
        switch error {
        case let error as RelayStoreError: self = error
        case let error as DamagedRow: self = .damaged(path: path, what: "\(error)")
        case let error as DatabaseError where [.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(error.resultCode):
            self = .damaged(path: path, what: error.message ?? "\(error.resultCode)")
        case let error as DatabaseError: self = .unusable(path: path, why: error.message ?? "\(error.resultCode)")
        default: self = .unusable(path: path, why: "\(error)")
        }
    }
}
