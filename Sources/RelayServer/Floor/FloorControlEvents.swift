// The events and actions of the rules of a floor.
import MonotonicTime
import RelayProtocol

extension FloorControlStateMachine {
    /// The timers of one channel.
    public struct Timers: Sendable, Equatable {
        /// T1: the floor is freed after this long without RTP from its holder.
        public var mediaTimeout: Duration = .seconds(5)
        /// T2: a burst may last this long from its first RTP packet, also over a lost connection of its talker.
        public var talkTimeLimit: Duration = .seconds(60)
        /// T3: media is accepted for at most this long after a release or a revocation.
        public var releaseGrace: Duration = .seconds(2)
        /// How long missing packets are waited for after the release, and after each packet that comes behind it, up to T3.
        public var repairGrace: Duration = .milliseconds(500)
        /// T3 where somebody more important waits: media is accepted for at most this long after that.
        public var preemptionGrace: Duration = .milliseconds(500)
        /// T9: a member whose burst was too long may not ask again for this long, on whichever connection; zero: at once.
        public var retryAfter: Duration = .zero
        /// The timers of the design: 5 s, 60 s, 2 s, 0.5 s, 0.5 s and none.
        public init() {}
    }

    /// A wish to talk.
    public struct Request: Sendable, Hashable {
        /// The source of the requesting connection.
        public var ssrc: SSRC
        /// The requesting member, the same on every connection.
        public var member: MemberID
        /// The asker's number of this request; an answer repeats it.
        public var requestID: FloorRequestID
        /// The SFrame key id under which the burst will be sealed.
        public var keyID: UInt64
        /// How much it matters, by the relay's word: 0 to 254, or `FloorRules.emergency`.
        public var priority: UInt8 = 0
        /// Whether it may wait until the floor is free, where there is a queue.
        public var mayQueue = false

        /// Whether it comes before everything else.
        public var isEmergency: Bool { priority == FloorRules.emergency }

        /// Whether it is `older` once more, under the media key of another epoch: that key was renewed meanwhile.
        func renews(_ older: Request) -> Bool {
            ssrc == older.ssrc && priority == older.priority && mayQueue == older.mayQueue
                && keyID >> 48 != older.keyID >> 48
        }
    }

    /// What may happen to the floor, media aside.
    public enum Event: Sendable, Equatable {
        /// A member asks for the floor.
        case request(Request)
        /// A member gives the floor, or its wish for it, back. `lastSequence` is `nil` when no media was sent.
        case release(ssrc: SSRC, requestID: FloorRequestID, lastSequence: UInt16?)
        /// A member is gone.
        case left(ssrc: SSRC)
        /// A member withdraws its waiting request. Its current burst continues.
        case withdrawn(ssrc: SSRC)
        /// A member may not talk any more, but stays.
        case silenced(ssrc: SSRC)
        /// The channel is to have other rules as soon as nobody talks.
        case rules(FloorRules)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// Why the floor is taken back from its holder.
    public enum RevokeCause: Sendable, Equatable {
        /// T2: the burst reached the talk-time limit.
        case talkTimeLimit
        /// T1: the holder sent no media.
        case noMedia
        /// T1 passed while the relay itself was held up: nobody heard what the holder said, if it said anything.
        case heldUp
        /// A request that matters more took the floor.
        case preempted
        /// The holder may not talk any more.
        case noPermission
    }

    /// How a burst ended.
    public enum EndReason: Sendable, Equatable {
        /// The holder released the floor.
        case released
        /// The floor was taken back.
        case revoked(RevokeCause)
        /// The holder left the channel or lost its connection.
        case left
        /// The holder sent a new request without releasing.
        case restarted
    }

    /// What a burst came to.
    public struct Summary: Sendable, Equatable {
        /// Its request.
        public var request: Request
        /// When its first packet came; `nil` when none did.
        public var firstMediaAt: Instant?
        /// The sequence numbers that came.
        public var sequences: SequenceRecord
        /// Why it ended.
        public var reason: EndReason
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Tell the asker it holds the floor and how long it may talk from its first packet on.
        case grant(Request, talkTime: Duration)
        /// Tell the asker that `holder` has the floor, or, in full duplex, that others have all of it.
        case deny(Request, holder: SSRC)
        /// Tell the asker that its last burst was too long, and that it may ask again after this time.
        case retryLater(Request, after: Duration)
        /// Tell the asker that it may not talk.
        case notPermitted(Request)
        /// Tell the asker that too many wait already.
        case queueFull(Request)
        /// Tell the requester that it waits at this position, counted from 1. Repeated at every change.
        case queued(Request, position: Int)
        /// Tell the other members who talks.
        case taken(Request)
        /// Tell the holder that it no longer holds the floor.
        case revoke(Request, RevokeCause)
        /// Tell every member that the burst of `ssrc` is over. `lastSequence` is the last one forwarded; `nil` when
        /// none was.
        case idle(ssrc: SSRC, lastSequence: UInt16?, Summary)
        /// Tell every member that these rules hold from now on.
        case rules(FloorRules)
    }

    /// What is to be done with an RTP packet.
    public enum MediaDecision: Sendable, Equatable {
        /// Pass it on. `isFirst`: the burst's first. `endsBurst`: deliver `.deadline` afterwards.
        case forward(isFirst: Bool, endsBurst: Bool)
        /// Drop it: without the floor, under another key id, a duplicate, or after the release.
        case drop(MediaDrop)
    }
}
