// The enumerations of Apple's PushToTalk, with its raw values (PTChannelManager.h, PTChannelManagerDelegate.h).

/// When the local participant may transmit on a channel.
public enum PTTransmissionMode: Int, Hashable, Sendable, CaseIterable {
    /// Transmitting and receiving at the same time.
    case fullDuplex = 0
    /// Either transmitting or receiving: nobody transmits while a remote participant is active. The default.
    case halfDuplex = 1
    /// The local participant never transmits.
    case listenOnly = 2
}

/// Whether the service behind a channel can be used. Transmissions begin only while it is ready.
public enum PTServiceStatus: Int, Hashable, Sendable, CaseIterable {
    /// Usable. The default.
    case ready = 0
    /// Not usable now; a connection is being made.
    case connecting = 1
    /// Not usable.
    case unavailable = 2
}

/// Why a channel became active.
public enum PTChannelJoinReason: Int, Hashable, Sendable, CaseIterable {
    /// A program asked for it.
    case developerRequest = 0
    /// It was active before the last restart.
    case channelRestoration = 1
}

/// Why a channel stopped being active.
public enum PTChannelLeaveReason: Int, Hashable, Sendable, CaseIterable {
    /// None of the others.
    case unknown = 0
    /// The user left.
    case userRequest = 1
    /// A program asked for it, or answered a push with `PTPushResult.leaveChannel`.
    case developerRequest = 2
    /// The system took it away (its administrator, for instance).
    case systemPolicy = 3
}

/// Who began or ended a transmission.
public enum PTChannelTransmitRequestSource: Int, Hashable, Sendable, CaseIterable {
    /// None of the others; also an end that nobody asked for, such as the talk-time limit.
    case unknown = 0
    /// The user, in the system's own user interface.
    case userRequest = 1
    /// A program.
    case developerRequest = 2
    /// A button of a hands-free device.
    case handsfreeButton = 3
}
