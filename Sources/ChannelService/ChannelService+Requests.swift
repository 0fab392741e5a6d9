// The requests of Apple's `PTChannelManager` in async form, for callers that are not on the loop.

import FoundationEssentials
import PushToTalkCore

extension ChannelService {
    /// Asks for something and waits for the answer; a begin is answered when the microphone records.
    ///
    /// - Throws: Why not.
    public func perform(_ request: ChannelManagerStateMachine.Request) async throws(PTChannelError) {
        let error: PTChannelError? = await withCheckedContinuation { continuation in
            self.request(request) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// Makes a channel the active one.
    ///
    /// - Throws: `channelLimitReached` while another one is.
    public func join(
        channelUUID: UUID, descriptor: PTChannelDescriptor, reason: PTChannelJoinReason = .developerRequest,
        mode: PTTransmissionMode = .halfDuplex, status: PTServiceStatus = .ready,
        options: ChannelManagerStateMachine.JoinOptions = .init()
    ) async throws(PTChannelError) {
        try await perform(
            .join(
                channelUUID: channelUUID, descriptor, reason: reason, mode: mode, status: status, options: options))
    }

    /// Makes the channel of `record` the active one again, before its program runs.
    ///
    /// - Throws: `channelLimitReached` while another one is.
    public func restore(_ record: RestorationRecord, status: PTServiceStatus) async throws(PTChannelError) {
        try await perform(record.joinRequest(status: status))
    }

    /// Leaves the channel, and ends what is in progress there.
    ///
    /// - Throws: `channelNotFound`.
    public func leave(
        channelUUID: UUID, reason: PTChannelLeaveReason = .developerRequest
    ) async throws(PTChannelError) {
        try await perform(.leave(channelUUID: channelUUID, reason: reason))
    }

    /// Begins transmitting, and returns when the microphone records (or when the transmission was stopped before).
    ///
    /// - Throws: Why it did not begin, or ended before the microphone recorded; see docs/push-to-talk.md for the codes.
    public func beginTransmitting(
        channelUUID: UUID, source: PTChannelTransmitRequestSource
    ) async throws(PTChannelError) {
        try await perform(.beginTransmitting(channelUUID: channelUUID, source: source))
    }

    /// Ends the transmission.
    ///
    /// - Throws: `transmissionNotFound`, `channelNotFound`.
    public func stopTransmitting(
        channelUUID: UUID, source: PTChannelTransmitRequestSource
    ) async throws(PTChannelError) {
        try await perform(.stopTransmitting(channelUUID: channelUUID, source: source))
    }

    /// Shows another name or picture.
    ///
    /// - Throws: `channelNotFound`.
    public func setChannelDescriptor(
        _ descriptor: PTChannelDescriptor, channelUUID: UUID
    ) async throws(PTChannelError) {
        try await perform(.setChannelDescriptor(descriptor, channelUUID: channelUUID))
    }

    /// Tells who is speaking; nil: nobody any more.
    ///
    /// - Throws: `transmissionInProgress` in half duplex while transmitting; `channelNotFound`.
    public func setActiveRemoteParticipant(
        _ participant: PTParticipant?, channelUUID: UUID
    ) async throws(PTChannelError) {
        try await perform(.setActiveRemoteParticipant(participant, channelUUID: channelUUID))
    }

    /// Tells whether the service can be used; a transmission ends when it cannot.
    ///
    /// - Throws: `channelNotFound`.
    public func setServiceStatus(_ status: PTServiceStatus, channelUUID: UUID) async throws(PTChannelError) {
        try await perform(.setServiceStatus(status, channelUUID: channelUUID))
    }

    /// Allows other transmissions than until now.
    ///
    /// - Throws: `channelNotFound`.
    public func setTransmissionMode(_ mode: PTTransmissionMode, channelUUID: UUID) async throws(PTChannelError) {
        try await perform(.setTransmissionMode(mode, channelUUID: channelUUID))
    }

    /// Lets buttons of hands-free devices begin transmissions, or not.
    ///
    /// - Throws: `channelNotFound`.
    public func setAccessoryButtonEventsEnabled(_ enabled: Bool, channelUUID: UUID) async throws(PTChannelError) {
        try await perform(.setAccessoryButtonEventsEnabled(enabled, channelUUID: channelUUID))
    }
}
