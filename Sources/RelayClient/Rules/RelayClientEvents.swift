// The events and actions of a client's rules.
import RelayProtocol
import Vocabulary

extension RelayClientCore {
    /// What may happen, datagrams aside.
    public enum Event: Sendable {
        /// The user wants the link.
        case join
        /// The user does not want it any more.
        case leave
        /// The first packet to the relay of the invitation can carry early data, which only that relay can read.
        case earlyDataOffered
        /// The handshake with the relay of the invitation is complete.
        case connected
        /// The connection that carried the join as early data is given up, and another one is still being made.
        case joinLost
        /// The link is about to move to another connection, which has sent `joinMessage`. This one serves until `moved`.
        case moveBegan
        /// The link stays on its connection.
        case moveEnded
        /// The relay let this end in on the other connection, which serves from now on.
        case moved(ServerMessage)
        /// The connection failed or was lost.
        case connectionEnded(RelayLinkError)
        /// The relay does not answer on this path, and there is another one.
        case pathLost
        /// This machine's network has changed while there was no connection.
        case networkChanged
        /// The relay's name has so many addresses that this machine has a way to.
        case addressesFound(Int)
        /// The place that a connection is being made to has an address of the name in the invitation.
        case placeCovered
        /// The relay, with the same key, is at these places now, the best one first; 1 to 8.
        case relayMoved([RelayPlace])
        /// A control message came.
        case message(ServerMessage)
        /// The transport took a media datagram under this number.
        case mediaSent(UInt64, [UInt8])
        /// The transport did not take a media datagram.
        case mediaRefused([UInt8])
        /// The relay has that datagram.
        case mediaAcknowledged(UInt64)
        /// That datagram is lost.
        case mediaLost(UInt64)
        /// Packets came in answer to a repair request; `isEnd`: all that the relay had.
        case repaired(request: UInt32, packets: [[UInt8]], isEnd: Bool)
        /// Packets came in answer to a request for a burst; `isEnd`: all of this answer, `isWhole`: all that the relay has.
        case burst(request: BurstRequestID, packets: [[UInt8]], isWhole: Bool, isEnd: Bool)
        /// Something came on a stream of the relay that is none of the protocol's.
        case violation(String)
        /// The user begins a burst.
        case begin(BurstID, priority: UInt8)
        /// The next frame of the burst.
        case frame(OutgoingFrame)
        /// The burst has got its last frame.
        case end
        /// What is not sent of the burst is to be erased.
        case abort
        /// The user asks which bursts the relay keeps.
        case listBursts(BurstQueryID)
        /// The user asks for one of them.
        case fetchBurst(BurstQueryID, BurstName)
        /// The user wants the pushes for a token.
        case registerPushes(PushToken, PushTopic)
        /// The user declares a token dead.
        case unregisterPushes(PushToken)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Open a connection to `RelayClientCore.relay`.
        case connect
        /// Close the connection, if there is one, after what was sent.
        case close(RelayCloseCode)
        /// Send a control message.
        case send(ClientMessage)
        /// Send a message in a datagram: it may get lost.
        case sendLoosely(ClientMessage)
        /// Send a media datagram.
        case sendMedia([UInt8])
        /// Send a media packet, which has its trailer, outside QUIC.
        case sendOutsideQUIC([UInt8])
        /// Whether an answer to such packets is awaited from now on: meanwhile the relay is asked often for a sign of life.
        case awaitAnswer(Bool)
        /// Ask the relay for a sign of life, and deliver `.pathLost` when none comes; `patience`: how much longer than usual that may take.
        case verify(patience: Duration)
        /// Tell the user.
        case tell(RelayLinkEvent)
        /// Answer a question of the user; each is answered once.
        case answer(BurstQueryID, BurstAnswer)
        /// Tell the user of pushes.
        case tellOfPushes(PushLinkEvent)
        /// Tell who would host the channel what it needs for that.
        case tellOfSuccession(ServerMessage.Succession)
    }
}
