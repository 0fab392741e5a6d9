// The errors of a relay's records, with words that say what to do.
import Files
import RelayProtocol
import SQLite

/// Why a relay's records cannot be read or written, or do not allow what was asked.
public enum RelayStoreError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The file cannot be opened or is of no use.
    case unusable(path: String, why: String)
    /// The file cannot be used now, and may be later though nobody mends it: the disk is full or fails, another process has it.
    case notNow(path: String, why: String)
    /// The records that must exist are missing: there is no file, or it is empty.
    case missing(path: String)
    /// The file was removed, replaced or cut off while it was open: what is written does not reach the next start.
    case replaced(path: String)
    /// The file is a link, or could be somebody else's.
    case unsafe(path: String, why: String)
    /// The file is not a valid database, or has invalid records.
    case damaged(path: String, what: String)
    /// The file was made by a later version of the program.
    case newer(path: String)
    /// A write did not reach the disk; nothing has changed.
    case notWritten(why: String)
    /// The records are not those that the log of the cluster makes.
    case differs(String)
    /// The records are those of a cluster, which is not told of the change.
    case inCluster
    /// There is no such channel.
    case unknownChannel(String, known: [String])
    /// There is no channel with this identifier.
    case noChannel(ChannelID)
    /// The channel's name is taken.
    case channelExists(String)
    /// The channel is in the configuration, which has its settings.
    case declared(String)
    /// The member was removed from the channel.
    case memberRemoved(String)
    /// What was to be changed has changed since it was read.
    case changedSince(String)
    /// The key of a request that was repeated was another request's.
    case retryDiffers
    /// No member, or several members, match the name or the beginning of the identifier.
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
                "\(path) cannot be used: \(why)"
        case .notNow(let path, let why):
            return "\(path) cannot be used now: \(why)"
        case .missing(let path):
            return
                "\(path) is missing or empty, though this relay has had records: nobody would be a member any more. Stop the "
                + "relay and put a copy of the file there; if there is none, 'pttrelay begin-anew records' makes empty ones"
        case .replaced(let path):
            return
                "\(path) was removed or replaced while the relay ran, so that it writes nothing more; put the right file there "
                + "and restart the relay"
        case .unsafe(let path, let why):
            return
                "\(path) was not opened: \(why); put the records there as a regular file that the relay's user owns"
        case .damaged(let path, let what):
            return
                "\(path) is damaged: \(what); stop the relay and put a copy from a backup in its place; if there is "
                + "none, 'pttrelay begin-anew records' makes empty ones, and every member needs a new invitation"
        case .newer(let path):
            return "\(path) was made by a later version of pttrelay; install that one again"
        case .notWritten(let why): return "the records cannot be written (\(why)); nothing was changed"
        case .differs(let why):
            return
                "the records here do not fit those of the cluster: \(why); stop the relay, and 'pttrelay begin-anew records' makes "
                + "empty ones, which it fills from the cluster"
        case .inCluster:
            return
                "these records are those of a cluster: run the command on the node that serves. A relay without [cluster] in its "
                + "configuration can have them after 'pttrelay cluster leave'"
        case .unknownChannel(let name, let known):
            let names = known.prefix(10).map { "'\($0)'" }.joined(separator: ", ")
            return "the relay has no channel '\(name)'"
                + (names.isEmpty ? "; start it with --channel" : "; it has \(names)")
        case .noChannel(let id): return "the relay has no channel \(id)"
        case .channelExists(let name): return "the relay has a channel '\(name)' already"
        case .declared(let name):
            return
                "'\(name)' is declared in pttrelay.toml, or with --channel; change or remove it there, and reload or restart the relay"
        case .memberRemoved(let name):
            return "'\(name)' was removed from the channel; readmit it first"
        case .changedSince(let what): return "\(what) was changed by somebody else; read it again"
        case .retryDiffers: return "the key of this request was used for another request; use a new one"
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

    /// Whether the same may succeed later although nobody mends anything.
    public var mayPass: Bool {
        switch self {
        case .notNow, .notWritten: true
        default: false
        }
    }

    static func notWritten(_ error: any Error, path: String) -> RelayStoreError {
        switch RelayStoreError(error, path: path) {
        case .unusable(_, let why), .notNow(_, let why): .notWritten(why: why)
        case let other: other
        }
    }

    /// The same in the words of these records.
    init(_ error: FileError) {
        let why = error.reason + (error.advice.isEmpty ? "" : "; \(error.advice)")
        self = error.mayPass ? .notNow(path: error.path, why: why) : .unusable(path: error.path, why: why)
    }

    /// What was thrown while the file at `path` was opened or read, in words.
    init(_ error: any Error, path: String) {
        switch error {
        case let error as RelayStoreError: self = error
        case let error as DamagedRow: self = .damaged(path: path, what: "\(error)")
        case let error as DatabaseError: self.init(error, path: path)
        case let error as FileError: self.init(error)
        default: self = .unusable(path: path, why: "\(error)")
        }
    }
    private init(_ error: DatabaseError, path: String) {
        switch error.kind {
        case .corrupt, .notADatabase: self = .damaged(path: path, what: error.message)
        // What another state of the disk, the memory or other processes ends.
        case .full: self = .notNow(path: path, why: "the disk is full; make room on it")
        case .inputOutput:
            self = .notNow(
                path: path,
                why: "the disk cannot be read or written; it is full ('df' shows that) or failing ('dmesg')")
        case .busy: self = .notNow(path: path, why: "another process uses it; end that one first")
        case .outOfMemory: self = .notNow(path: path, why: "memory is short")
        case .interrupted: self = .notNow(path: path, why: error.message)
        case .constraint, .conflict, .other: self = .unusable(path: path, why: error.message)
        }
    }
}
