// Messages that the relay keeps: listing and playing them.
import Audio
import ChannelService
import DaemonAPI
import FoundationEssentials
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import Vocabulary

extension ChannelDirector {
    func keptMessages(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) -> [KeptMessage] {
        // The relay tells how old they are: its clock need not be this machine's.
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        return try await keptBursts(channel).map { burst in
            KeptMessage(
                id: burst.id, talker: burst.talker.name, beganAt: now - Int64(burst.age.milliseconds),
                milliseconds: UInt32(clamping: Int64(burst.duration.milliseconds)), isGoingOn: burst.isGoingOn,
                isOwn: burst.isOwn, canBeOpened: burst.canBeOpened)
        }
    }

    func replayKept(_ id: String, of channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        guard let burst = try await keptBursts(channel).first(where: { $0.id == id }) else {
            throw PTChannelError(KeptBurstError.notKept)
        }
        guard burst.canBeOpened else { throw PTChannelError(KeptBurstError.noKey) }
        let frames: [ReceivedFrame] = try await ask(channel) { client, answer in client.fetchBurst(id, answer) }
        // Another channel may be the active one by now, or somebody may speak.
        try await self.channel.replay(
            PTParticipant(name: burst.talker.name, image: nil), frames, channelUUID: channel)
    }

    private func keptBursts(_ channel: UUID) async throws(PTChannelError) -> [KeptBurst] {
        try await ask(channel) { client, answer in client.keptBursts(answer) }
    }

    /// Asks the relay of the channel.
    private func ask<Answer: Sendable>(
        _ channel: UUID,
        _ question:
            @Sendable (isolated RelayClient, @escaping @Sendable (Result<Answer, KeptBurstError>) -> Void) -> Void
    ) async throws(PTChannelError) -> Answer {
        guard let seat, seat.uuid == channel else { throw PTChannelError(.channelNotFound) }
        guard let client = seat.client, !seat.isPushOnly else {
            throw PTChannelError(
                .transmissionNotAllowed,
                explanation: "a program carries the sound of this channel; only that program has its messages")
        }
        let result: Result<Answer, KeptBurstError> = await withCheckedContinuation { continuation in
            client.assumeIsolated { client in question(client) { continuation.resume(returning: $0) } }
        }
        do throws(KeptBurstError) { return try result.get() } catch { throw PTChannelError(error) }
    }
}

extension PTChannelError {
    /// The error that a relay's refusal means for the caller.
    init(_ error: KeptBurstError) {
        let code: Code =
            switch error {
            case .notKept, .off, .notOffered: .transmissionNotFound
            case .noKey, .notAMember: .transmissionNotAllowed
            case .notConnected, .tooMuch, .notAnswered, .refused: .unknown
            }
        self.init(code, explanation: error.description)
    }
}
