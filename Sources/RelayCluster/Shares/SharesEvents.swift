// The times, events and actions of `SharesStateMachine`.
import MonotonicTime

extension SharesStateMachine {
    /// How long things take.
    public struct Timers: Equatable, Sendable {
        /// The table is read this often.
        public var poll: Duration = .milliseconds(250)
        /// The same while an earlier owner of one of the shares still has channels.
        public var heldPoll: Duration = .milliseconds(50)
        /// A relay writes its entry this often.
        public var renewal: Duration = .seconds(1)
        /// What has failed is tried again after this time.
        public var retry: Duration = .milliseconds(250)
        /// How long an entry is good for.
        public var lease: Duration = .seconds(20)
        /// How much earlier its relay ends.
        public var margin: Duration = .seconds(1)
        /// After this time without a renewal the relay asks the others for promises.
        public var doubt: Duration = .seconds(3)
        /// After this time others may remove its entry where a majority consents. A relay whose NATS server has gone needs up to 4 s to
        /// find another one.
        public var early: Duration = .seconds(8)
        /// How long a promise lasts, and how much earlier it ends for who has got it.
        public var promise: Duration = .seconds(4)
        /// See `promise`.
        public var promiseMargin: Duration = .milliseconds(500)
        /// Promises and consents are asked for this often.
        public var vote: Duration = .milliseconds(500)
        /// How long the floors of channels that are to move may wait for the table.
        public var pause: Duration = .seconds(1)
        /// The time between two moves whose reason is that another relay has fewer shares.
        public var balance: Duration = .seconds(1)
        /// Shares that move at once for that reason: their members all connect again.
        public var sharesAtOnce = 2
        /// How long a relay that goes waits until its shares are others'.
        public var release: Duration = .seconds(3)

        /// The usual times.
        public init() {}
    }

    /// What has happened.
    public enum Event: Equatable, Sendable {
        /// The relay listens.
        case start
        /// `nextDeadline` has come.
        case deadline
        /// The table as it is, and its revision; nil and 0: there has been none.
        case read(ShareTable?, revision: UInt64)
        /// The table cannot be read.
        case readFailed
        /// The table is written, and has this revision now.
        case written(revision: UInt64)
        /// It has another revision than was expected.
        case refused
        /// It cannot be written; or it was, and nobody knows.
        case writeFailed
        /// Other relays have read another table: servers have lost a part of the stream.
        case forked
        /// No process has that relay's port.
        case portClosed(incarnation: String)
        /// Whether this relay has all records, and the last epoch in which a relay has written some.
        case follows(Bool, epoch: UInt64 = 0)
        /// The answer to `Action.pause`: the channels on which somebody talks, by their share.
        case paused([Int: Set<String>])
        /// A channel that somebody talked on has gone to its new owner.
        case left(String)
        /// That relay has promised what it was asked for then.
        case promised(by: String, askedAt: Instant)
        /// That relay consents to the removal of another one's entry.
        case consented(by: String, to: String)
        /// This relay is to go.
        case release
    }

    /// Why a relay serves no longer.
    public enum End: Equatable, Sendable {
        /// The others have removed it.
        case removed
        /// It could not renew its entry.
        case leaseLost
        /// The cluster has too many relays.
        case tooMany
        /// Others have read another table.
        case forked
    }

    /// What is to be done.
    public enum Action: Equatable, Sendable {
        /// Read the table.
        case read
        /// Write it over that revision; 0: if there is none.
        case write(ShareTable, over: UInt64)
        /// Watch the ports of these other relays, by their incarnations.
        case watch([String: String])
        /// Ask these relays to leave this one's entry alone.
        case askForPromises([String])
        /// Ask these relays to consent to the removal of that one's entry.
        case askForConsent(to: String, [String])
        /// Serve the channels of the share; of the channels `held` grant no floor.
        case take(Int, held: Set<String>)
        /// Grant the floors of these channels.
        case unhold(Set<String>)
        /// Grant no floors of channels of these shares on which nobody talks, and tell of the others.
        case pause([Int])
        /// Grant them again.
        case resume([Int])
        /// Another relay has the share: members go there.
        case move(Int, to: String)
        /// Where the shares are, in their order.
        case places([Place])
        /// That relay writes the records, in that epoch; nil: none does.
        case writer(ClusterMember?, epoch: UInt64)
        /// The relay has no share any more, and does not write the records; or it has tried for long enough.
        case released
        /// Serve no longer, at once.
        case end(End)
    }

    /// Where a share is.
    public enum Place: Equatable, Sendable {
        /// At this relay.
        case here
        /// At the one that members reach there, as `host:port`, and other relays at its web endpoint (`WebLinkAddress`), if it has one.
        case elsewhere(String, web: String?)
        /// Nowhere.
        case nowhere
    }
}
