// Channels that are open to everybody nearby: how their invitation is given, and how they end for all.
import MonotonicTime
import RelayProtocol

/// Who gets a channel's invitation from the relay itself.
public enum ChannelAdmission: Sendable, Hashable {
    /// Nobody: whoever runs the relay hands links out.
    case invited
    /// Whoever asks, with the media key of an end-to-end channel.
    case open(mediaKey: MediaKey?)
}

extension RelayCore {
    /// Gives the invitation to an open channel, or says why not.
    ///
    /// No client may ask often, and all clients together may not either: a stranger who asks costs a handshake, and no more.
    mutating func giveInvitation(
        _ request: ClientMessage.InvitationRequest, to id: ConnectionID, at now: Instant
    ) -> [Action] {
        func refuse(_ cause: InvitationRefusal, _ phrase: String, retryAfter: Duration = .zero) -> [Action] {
            counters.invitationsRefused += 1
            return [
                .send(.invitationRefused(.init(cause: cause, phrase: phrase, retryAfter: retryAfter)), to: [id])
            ]
        }
        guard request.protocolVersion == RelayProtocolLimits.version else {
            return refuse(.unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)")
        }
        guard let number = channelNumbers[request.channel],
            case .open(let mediaKey) = channels[number].configuration.admission
        else { return refuse(.notOpen, "no such channel, or it is not open to everybody") }
        guard invitationBucket.take(at: now) else {
            return refuse(.tooMany, "too many ask at a time", retryAfter: limits.invitationRetryTime)
        }
        counters.invitationsGiven += 1
        let configuration = channels[number].configuration
        return [
            .send(
                .invitation(.init(token: configuration.token, channelName: configuration.name, mediaKey: mediaKey)),
                to: [id])
        ]
    }

    /// Ends a channel for all its members, who do not come back.
    mutating func end(_ channel: ChannelID, _ phrase: String, at now: Instant) -> [Action] {
        guard let number = channelNumbers[channel] else { return [] }
        var actions: [Action] = []
        let pushOnly = channels[number].pushConnectionOfMember.values.sorted()
        for id in channels[number].everyone + pushOnly {
            // Nobody is told that the others leave: they leave themselves.
            if let member = connections[id]?.member { pushes.disconnected(id, of: member, at: now) }
            connections[id] = nil
            actions += [.stopMedia(id, channel: number), .close(id, .channelEnded, phrase)]
        }
        for member in channels[number].members.values { sources.remove(member.ssrc) }
        changeStore(number) { $0.removeAll() }
        channels[number].clear()
        channels[number].configuration.admission = .invited
        return actions
    }
}
