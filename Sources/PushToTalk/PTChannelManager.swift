// Apple's PTChannelManager: getting one, and what an app asks of it.
import DBus
import Logging
import PTTBus
import PushToTalkCore
import Synchronization

/// Joins channels, transmits and receives: an app's access to push-to-talk on this machine, which pttd provides.
///
/// A process has one, got by `channelManager(delegate:restorationDelegate:)`. It survives a restart of pttd: the
/// delegate is told that a transmission or session has ended, and gets `didJoinChannel` with `.channelRestoration` when
/// the channel is back. All methods may be called from any thread. Requests are carried out in order.
public final class PTChannelManager: NSObject, Sendable {
    /// The audio session of its channel.
    public let audioSession: PTAudioSession
    let link: DaemonLink
    private let active = Mutex<UUID?>(nil)

    init(_ link: DaemonLink, audioSession: PTAudioSession) {
        self.link = link
        self.audioSession = audioSession
        super.init()
        link.caller.setManager(self)
    }

    deinit { link.stop() }

    /// The channel that is joined: the user sees it, and its push token works. Nil as well while pttd is away.
    ///
    /// It changes right before `didJoinChannel` and `didLeaveChannel`, on the delegates' queue.
    public var activeChannelUUID: UUID? { active.withLock { $0 } }

    func setActiveChannel(_ uuid: UUID?) {
        active.withLock { $0 = uuid }
        if uuid == nil { audioSession.forgetInterruption(reason: "there is no active channel") }
    }

    // MARK: Requests, whose outcome the delegate is told

    /// Makes a channel the active one; its sound is the app's. Told by `didJoinChannel` with `.developerRequest`, or `failedToJoinChannel`.
    ///
    /// - Parameters:
    ///   - channelUUID: The app's own choice; it names the channel from now on.
    ///   - descriptor: How the user sees the channel.
    public func requestJoinChannel(channelUUID: UUID, descriptor: PTChannelDescriptor) {
        join(channelUUID, descriptor, ["Media": .string("application")])
    }

    /// Leaves the channel. Told by `didLeaveChannel` with `.developerRequest`, or `failedToLeaveChannel`.
    public func leaveChannel(channelUUID: UUID) {
        link.request(.leave, channelUUID) { link throws(DBusError) in
            try await link.callManager("LeaveChannel", [.string(channelUUID.uuidString.lowercased())])
        }
    }

    /// Begins transmitting. Told by `didBeginTransmittingFrom` with `.developerRequest`, or `failedToBeginTransmittingInChannel`.
    public func requestBeginTransmitting(channelUUID: UUID) {
        link.request(.begin, channelUUID) { link throws(DBusError) in
            try await link.callChannel(channelUUID, "RequestBeginTransmitting", [])
        }
    }

    /// Ends the transmission, regardless of who began it. `didEndTransmittingFrom` with `.developerRequest` or
    /// `failedToStopTransmittingInChannel` reports the outcome.
    public func stopTransmitting(channelUUID: UUID) {
        link.request(.stop, channelUUID) { link throws(DBusError) in
            try await link.callChannel(channelUUID, "RequestStopTransmitting", [])
        }
    }

    func join(_ channelUUID: UUID, _ descriptor: PTChannelDescriptor, _ options: [String: DBusValue]) {
        let options = options.merging(imageOptions(descriptor.image)) { first, _ in first }
        link.request(.join, channelUUID) { link throws(DBusError) in
            try await link.callManager(
                "JoinChannel",
                [.string(channelUUID.uuidString.lowercased()), busName(descriptor.name), .properties(options)])
        }
    }
}

extension PTChannelManager {
    // MARK: Getting one

    private enum Shared {
        case none
        case underway
        case ready(PTChannelManager)
    }

    private static let shared = Mutex(Shared.none)
    private static let configuration = Mutex(LinkSettings())

    /// The app's well-known bus name, by which pttd starts the app for pushes and for the restoration of its channel:
    /// set it before asking for the channel manager.
    ///
    /// By default the bundle's identifier (`CFBundleIdentifier` of an `Info.plist` beside the executable), or the
    /// Flatpak id. Without a name the app works, but pttd cannot start it. docs/app-developers.md describes how to make
    /// a name startable.
    public static var applicationName: String? {
        get { configuration.withLock { $0.applicationName } ?? defaultApplicationName }
        set { configuration.withLock { $0.applicationName = newValue } }
    }

    private static var defaultApplicationName: String? {
        Bundle.main.bundleIdentifier ?? ProcessInfo.processInfo.environment["FLATPAK_ID"]
    }

    /// Where the delegates are called, one call at a time: the main queue unless set before asking for the channel manager.
    ///
    /// A program whose main thread serves no main queue (a GTK or Qt program, or one that blocks it) sets a queue of its own.
    public static var delegateQueue: DispatchQueue {
        get { configuration.withLock { $0.delegateQueue } }
        set { configuration.withLock { $0.delegateQueue = newValue } }
    }

    /// The channel manager of this process, with its channel restored. Ask for it when the app starts: pushes and restoration wait for it.
    ///
    /// Further calls give the same one; the delegates of the latest call are called, and kept.
    ///
    /// - Throws: `PTInstantiationError`: `invalidPlatform` without pttd; `missingEntitlement` when the bus does not let the app use it, or its name;
    ///   `instantiationAlreadyInProgress` while an earlier call has not returned.
    public nonisolated(nonsending) static func channelManager(
        delegate: any PTChannelManagerDelegate, restorationDelegate: any PTChannelRestorationDelegate
    ) async throws -> PTChannelManager {
        try await sharedManager(Delegates(manager: delegate, restoration: restorationDelegate))
    }

    /// The form of `channelManager(delegate:restorationDelegate:)` with a completion handler, which is called on `delegateQueue`; when that
    /// queue does not run, on another one.
    public static func channelManager(
        delegate: any PTChannelManagerDelegate, restorationDelegate: any PTChannelRestorationDelegate,
        completionHandler: @escaping @Sendable (PTChannelManager?, (any Error)?) -> Void
    ) {
        let delegates = Delegates(manager: delegate, restoration: restorationDelegate)
        // Decided now, not in the task: of two calls in a row the second is the one that is too early.
        let claim = claim(delegates)
        Task {
            do {
                let manager = try await finish(claim, delegates)
                delegateQueue.async { completionHandler(manager, nil) }
            } catch {
                // It may be for want of the delegates' queue that it failed.
                DispatchQueue.global().async { completionHandler(nil, error) }
            }
        }
    }

    private static func sharedManager(_ delegates: Delegates) async throws(PTInstantiationError) -> PTChannelManager {
        try await finish(claim(delegates), delegates)
    }

    private enum Claim {
        case mine
        case tooEarly
        case existing(PTChannelManager)
    }

    private static func claim(_ delegates: Delegates) -> Claim {
        shared.withLock { shared in
            switch shared {
            case .none:
                shared = .underway
                return .mine
            case .underway: return .tooEarly
            case .ready(let manager):
                manager.link.caller.setDelegates(delegates)
                return .existing(manager)
            }
        }
    }

    private static func finish(
        _ claim: Claim, _ delegates: Delegates
    ) async throws(PTInstantiationError) -> PTChannelManager {
        switch claim {
        case .existing(let manager): return manager
        case .tooEarly: throw PTInstantiationError(.instantiationAlreadyInProgress)
        case .mine: break
        }
        do throws(PTInstantiationError) {
            var settings = configuration.withLock { $0 }
            settings.applicationName = applicationName
            let manager = try await make(delegates, settings: settings, audioSession: .sharedInstance())
            shared.withLock { $0 = .ready(manager) }
            return manager
        } catch {
            shared.withLock { $0 = .none }
            throw error
        }
    }

    /// A channel manager of its own, not the process's.
    static func make(
        _ delegates: Delegates, settings: LinkSettings, audioSession: PTAudioSession = PTAudioSession()
    ) async throws(PTInstantiationError) -> PTChannelManager {
        let caller = DelegateCaller(delegates, queue: DelegateQueue(target: settings.delegateQueue))
        let link = try DaemonLink(settings: settings, caller: caller, logger: Logger(label: "PushToTalk"))
        let manager = PTChannelManager(link, audioSession: audioSession)
        try await link.start()
        return manager
    }
}
