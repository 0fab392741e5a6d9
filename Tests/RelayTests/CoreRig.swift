// What the suites of the relay's rules begin with: a channel, members with their joins, packets, and what is sent to whom.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import Testing

@testable import RelayServer

extension PublicKeyPin {
    /// The pin of the device of that number.
    static func numbered(_ number: some BinaryInteger) -> Self {
        Self((0..<byteCount).map { UInt8(truncatingIfNeeded: number >> (8 * ($0 % 4))) })!
    }
}

extension MemberID {
    /// The member whose device has that number.
    static func numbered(_ number: some BinaryInteger) -> Self { Self(PublicKeyPin.numbered(number)) }
}

extension RelayChannelConfiguration {
    /// A channel named Yard, opened by a token of its own.
    static func yard(_ rules: FloorRules = FloorRules()) -> Self {
        Self(id: ChannelID(), name: DisplayName("Yard")!, token: InvitationToken(), rules: rules)
    }

    /// How a member of that name joins it; by the token of the channel when there is no other.
    func joinMessage(_ name: String, token: InvitationToken? = nil, isPushOnly: Bool = false) -> ClientMessage {
        .join(
            .init(channel: id, token: token ?? self.token, displayName: DisplayName(name)!, isPushOnly: isPushOnly))
    }
}

extension RelayCore {
    /// Connects a device, by default that of the connection's number, and joins; what comes of the join.
    mutating func enter(
        _ id: ConnectionID, _ pin: PublicKeyPin? = nil, by join: ClientMessage, at now: Instant
    ) -> [Action] {
        _ = handle(.connected(id, pin ?? .numbered(id.number)), at: now)
        return handle(.message(id, join), at: now)
    }

    /// A packet that comes as a datagram.
    mutating func media(_ packet: [UInt8], from id: ConnectionID, at now: Instant) -> (MediaDecision, [Action]) {
        media(packet.withUnsafeBytes { MediaPacketHeader(parsing: $0) }!, bytes: packet, from: id, at: now)
    }
}

extension [RelayCore.Action] {
    /// What connection `id` reads of it, in order.
    func sent(to id: ConnectionID) -> [ServerMessage] {
        flatMap { action -> [ServerMessage] in
            switch action {
            case .send(let message, let to) where to.contains(id): [message]
            case .sendSeries(let series, let to): to.filter { $0.connection == id }.flatMap(series.messages(for:))
            default: []
            }
        }
    }

    /// The welcome of connection `id`; nil: it is not welcomed.
    func welcome(for id: ConnectionID) -> ServerMessage.Welcome? {
        for case .send(.welcome(let welcome), to: [id]) in self { return welcome }
        return nil
    }
}

extension MessageSeries {
    /// What a recipient of it reads.
    func messages(for recipient: Recipient) -> [ServerMessage] {
        var decoder = MessageDecoder()
        var messages: [ServerMessage] = []
        for piece in pieces(from: recipient.first) {
            do {
                try decoder.feed(piece) { bytes in
                    do { messages.append(try ServerMessage(parsing: bytes)) } catch { Issue.record(error) }
                }
            } catch {
                Issue.record("\(error)")
            }
        }
        return messages
    }
}

/// A packet of 80 bytes as the relay sees it: the headers in clear, and something sealed.
func packetOnTheWire(
    _ sequence: UInt16, ssrc: SSRC, keyID: UInt64, isFirst: Bool, timestamp: UInt32 = 0
) -> [UInt8] {
    let header =
        RTPHeader(marker: isFirst, sequence: sequence, timestamp: timestamp, ssrc: ssrc).bytes
        + SFrameHeader(keyID: KeyID(rawValue: keyID), counter: UInt64(sequence)).bytes
    return header + [UInt8](repeating: 9, count: 80 - header.count)
}
