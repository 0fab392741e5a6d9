// What must hold after every event, whatever the adapters report.

extension ChannelManagerStateMachine {
    /// The design's invariants, checked after every event. They hold whatever the adapters report, so a violation is
    /// a bug in this file's neighbours; ending the process then is what turns the microphone off.
    func checkInvariants() {
        switch capture {
        case .idle: break
        case .running:
            precondition(audioSession == .active, "I1: recording outside an active session")
            precondition(transmission?.captureStarted == true, "I1: recording without a press")
        case .tail:
            precondition(audioSession == .active, "I1: recording a tail outside an active session")
            precondition(transmission == nil && audioUnfinished, "I1: a tail without a release")
        }
        precondition(order.isTransmitting == (transmission != nil), "I2: a begin or an end was not told")
        precondition(audioUnfinished == (transmission != nil || capture != .idle), "I2: audio without an end")
        precondition(order.isSessionActive == sessionTold, "I6: the session was not told")
        if transmission != nil {
            precondition(channel != nil && !isSuspended && !isShutDown, "I2: a transmission that had to end")
            precondition(
                channel?.transmissionMode != .listenOnly && (channel?.serviceStatus == .ready || isServiceAwaited),
                "I2: not allowed")
            precondition(
                channel?.transmissionMode == .fullDuplex || activeRemoteParticipant == nil,
                "I4: both ways in half duplex"
            )
        }
        if waiting != nil {
            precondition(transmission == nil && capture == .idle, "I1: recording while waiting for the floor")
            precondition(channel != nil && !isSuspended && !isShutDown, "I2: waiting that had to end")
            precondition(
                channel?.transmissionMode != .listenOnly && (channel?.serviceStatus == .ready || isServiceAwaited),
                "I2: waiting in vain")
        }
        if sessionTold {
            precondition(channel != nil && !isSuspended, "I6: a session that had to end")
            switch audioSession {
            case .active, .deactivating: break
            case .inactive, .activating: preconditionFailure("I6: a session without a device")
            }
        }
        precondition(channel != nil || activeRemoteParticipant == nil, "a participant without a channel")
        precondition(tonesUntil == nil || audioSession == .active, "a tone without a device")
        precondition(channel != nil || pushes.token == nil, "a token without a channel")
        precondition(channel?.media != .application || capture == .idle, "I1: recording for a program that records")
    }
}
