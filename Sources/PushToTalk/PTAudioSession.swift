// The audio session of a channel, as the app sees it. pttd opens and closes the sound devices; nothing here does.
import Synchronization

/// The audio session that the channel manager activates and deactivates: `AVAudioSession`'s part in Apple's PushToTalk.
///
/// pttd plays its tones first and then lets go of the device, so that the app may open the devices of `currentRoute` between
/// `channelManager(_:didActivate:)` and `channelManager(_:didDeactivate:)`. There is nothing to activate and no category to set: a session is always for playing and
/// recording.
public final class PTAudioSession: Sendable {
    /// Where sound comes from and goes to.
    public struct Route: Hashable, Sendable {
        /// The ALSA name of the device to record from, such as `default` or `plughw:Headset`.
        public let inputDevice: String
        /// The ALSA name of the device to play on.
        public let outputDevice: String
        /// Samples per second that the devices run at; others are converted.
        public let sampleRate: Int

        /// A route.
        public init(inputDevice: String, outputDevice: String, sampleRate: Int) {
            self.inputDevice = inputDevice
            self.outputDevice = outputDevice
            self.sampleRate = sampleRate
        }
    }

    /// Something else took the audio, or gave it back.
    public enum Interruption: Hashable, Sendable {
        /// A call or the system has the audio. The words say who.
        case began(reason: String)
        /// The audio may be used again; transmissions may begin.
        case ended(reason: String)
    }

    /// How many events wait for a reader that does not read; the oldest are dropped.
    public static let eventsKeptMax = 16

    /// The route of a machine with one sound device, until pttd reports another one.
    static let defaultRoute = Route(inputDevice: "default", outputDevice: "default", sampleRate: 48_000)

    private struct State {
        var isActive = false
        var isInterrupted = false
        var route = PTAudioSession.defaultRoute
        var interruptions: [UInt64: AsyncStream<Interruption>.Continuation] = [:]
        var routeChanges: [UInt64: AsyncStream<Route>.Continuation] = [:]
        var nextReader: UInt64 = 1
    }

    private let state = Mutex(State())
    private static let shared = PTAudioSession()

    init() {}

    /// The session of the channel manager that `PTChannelManager.channelManager(delegate:restorationDelegate:)` gives.
    public static func sharedInstance() -> PTAudioSession { shared }

    /// Whether the session is active: the app may record and play.
    public var isActive: Bool { state.withLock { $0.isActive } }
    /// Whether something else has the audio.
    public var isInterrupted: Bool { state.withLock { $0.isInterrupted } }
    /// Where sound comes from and goes to.
    public var currentRoute: Route { state.withLock { $0.route } }

    /// Interruptions from now on. Each reader gets all of them; a reader that is late gets the last `eventsKeptMax`.
    public var interruptions: AsyncStream<Interruption> {
        stream(\.interruptions)
    }

    /// Changes of `currentRoute` from now on. Each reader gets all of them; a reader that is late gets the last `eventsKeptMax`.
    public var routeChanges: AsyncStream<Route> {
        stream(\.routeChanges)
    }

    private func stream<Element: Sendable>(
        _ readers: any WritableKeyPath<State, [UInt64: AsyncStream<Element>.Continuation]> & Sendable
    ) -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Element.self, bufferingPolicy: .bufferingNewest(Self.eventsKeptMax))
        let reader = state.withLock { state in
            defer { state.nextReader += 1 }
            state[keyPath: readers][state.nextReader] = continuation
            return state.nextReader
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { _ = $0[keyPath: readers].removeValue(forKey: reader) }
        }
        return stream
    }

    // MARK: What pttd tells, in the order of the delegate's callbacks

    func activated(_ route: Route?) {
        if let route { changed(to: route) }
        state.withLock { $0.isActive = true }
    }

    func deactivated() { state.withLock { $0.isActive = false } }

    /// The end of an interruption will not be reported any more.
    func forgetInterruption(reason: String) {
        if isInterrupted { interrupted(.ended(reason: reason)) }
    }

    func changed(to route: Route) {
        let readers = state.withLock { state in
            guard state.route != route else { return [AsyncStream<Route>.Continuation]() }
            state.route = route
            return Array(state.routeChanges.values)
        }
        for reader in readers { reader.yield(route) }
    }

    func interrupted(_ interruption: Interruption) {
        let readers = state.withLock { state in
            if case .began = interruption { state.isInterrupted = true } else { state.isInterrupted = false }
            return Array(state.interruptions.values)
        }
        for reader in readers { reader.yield(interruption) }
    }
}

extension PTAudioSession: CustomStringConvertible {
    /// Whether it is active, and the devices.
    public var description: String {
        let route = currentRoute
        return
            "\(isActive ? "active" : "inactive"), \(route.inputDevice) to \(route.outputDevice), \(route.sampleRate) Hz"
    }
}
