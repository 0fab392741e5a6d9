// The settings for the relay's shutdown.
import RelayProtocol
import RelayServer

/// The configuration's settings for the shutdown.
struct ShutdownSettings: Sendable, Equatable {
    /// How long it drains.
    var drainTime: Duration = .seconds(10)
    /// The address where the members continue; nil: they reconnect here.
    var successor: RelayPlace?
}
