// The interfaces between org.pttd on the bus and the rules behind it.
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Vocabulary

/// The identifier of a program with a channel manager on the bus.
public struct ApplicationID: Hashable, Sendable {
    /// Its unique name.
    public var busName: String
    /// The well-known name that D-Bus can start it by; empty: it cannot be started.
    public var name: String

    /// A program.
    public init(busName: String, name: String) {
        self.busName = busName
        self.name = name
    }

    /// What `ChannelProperties.owner` says of a channel that it joined.
    public var owner: String { name.isEmpty ? busName : name }
}

/// A program that has registered: who it is, and how to call it.
public struct Application: Sendable {
    /// Who it is.
    public let id: ApplicationID
    /// Its delegate.
    public let delegate: ApplicationDelegate
}

/// The caller of a request.
public struct BusCaller: Hashable, Sendable {
    /// Its unique name.
    public var busName: String
    /// The program that it has registered as; nil: it has not.
    public var application: ApplicationID?

    /// A caller.
    public init(busName: String, application: ApplicationID? = nil) {
        self.busName = busName
        self.application = application
    }
}

/// What `JoinChannel` asks for. Its arguments have been checked one by one; what they mean together has not.
public struct JoinRequest: Hashable, Sendable {
    /// The channel; nil: that of `link`.
    public var channel: UUID?
    /// The name, which may be empty, and the image.
    public var descriptor: PTChannelDescriptor
    /// The text of an invitation; not parsed yet.
    public var link: String?
    /// Whose the media are; nil: `pttd`'s where a link is known for the channel, else the program's.
    public var media: ChannelMedia?
    /// A channel that is left for it, if it is the active one; nil: none is, but a configured one.
    public var replacing: UUID?
    /// The caller that joins. With `.application` media it is a registered program.
    public var caller: BusCaller

    /// A request.
    public init(
        channel: UUID?, descriptor: PTChannelDescriptor, link: String? = nil, media: ChannelMedia? = nil,
        replacing: UUID? = nil, caller: BusCaller
    ) {
        self.channel = channel
        self.descriptor = descriptor
        self.link = link
        self.media = media
        self.replacing = replacing
        self.caller = caller
    }
}

/// One of the configured channels.
public enum ChannelChoice: Hashable, Sendable {
    /// The next one in the configuration's order; after the last comes the first.
    case up
    /// The one before.
    case down
    /// The one of this name.
    case name(String)

    /// A choice as `ChangeChannel` and users write it.
    public init(_ text: String) {
        switch text {
        case "up": self = .up
        case "down": self = .down
        default: self = .name(text)
        }
    }
}

/// The requests of the bus to the daemon. `DaemonAPI` has checked the arguments, and the caller's right to change a
/// channel. The channel of a request is the one of the last `DaemonAPI.update(channel:)`, or of one a moment before.
public protocol DaemonControls: Actor {
    /// `caller` presses the talk key of a channel.
    ///
    /// - Parameters:
    ///   - channel: The channel whose object it called. Another one may have become active while the begin waited.
    ///   - caller: Its unique name.
    /// - Throws: Why nothing is transmitted: `channelNotFound` when another channel is active.
    func pressTalkKey(_ channel: UUID, caller: String) async throws(PTChannelError)

    /// `caller` lets go, or has left the bus.
    ///
    /// - Returns: Whether it held the key.
    func releaseTalkKey(caller: String) async -> Bool

    /// Registers a program with a channel manager. It returns when the program's delegate was told about the
    /// restoration of its channel.
    ///
    /// A program that registers again, or with the name of another program, replaces the previous registration, after
    /// `applicationLeft` for it. If the program leaves meanwhile, its delegate answers `.gone` at once, and
    /// `applicationLeft` follows after this has returned.
    /// - Returns: The program's channel; nil while it has none.
    func register(_ application: Application) async throws(PTInstantiationError) -> UUID?

    /// A program unregistered, left the bus, or does not answer any more: its transmissions end, its membership stays. Its delegate
    /// is not called any more.
    func applicationLeft(_ application: ApplicationID) async

    /// Makes a channel the active one. Report it with `DaemonAPI.update(channel:)` before this returns.
    ///
    /// - Returns: The channel's UUID.
    func join(_ request: JoinRequest) async throws(PTChannelError) -> UUID

    /// Makes another configured channel the active one, which any caller may do. Report it with
    /// `DaemonAPI.update(channel:)` before this returns.
    ///
    /// - Returns: The channel's UUID.
    func changeChannel(_ choice: ChannelChoice, by caller: BusCaller) async throws(PTChannelError) -> UUID

    /// Plays the last message again; anybody may ask for it.
    func replayLast(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError)

    /// The messages that the relay keeps of the channel, the one that began last first; anybody may ask.
    func keptMessages(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) -> [KeptMessage]

    /// Fetches one of them by its `KeptMessage.id`, and plays it.
    func replayKept(_ id: String, of channel: UUID, by caller: BusCaller) async throws(PTChannelError)

    /// Leaves the channel; anybody may.
    func leave(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError)

    /// Begins a transmission by developer request. `requestingCallerLeft` reports that the caller has left the bus.
    func requestBeginTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError)

    /// Ends the transmission, regardless of who began it.
    func requestStopTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError)

    /// A caller whose `requestBeginTransmitting` succeeded, and who did not ask for a stop since, has left the bus: the transmission
    /// ends, if it is still the one that this caller began.
    func requestingCallerLeft(_ caller: BusCaller) async

    /// Shows another name and image.
    func setDescriptor(
        _ descriptor: PTChannelDescriptor, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError)

    /// Tells whether the service can be used.
    func setServiceStatus(_ status: PTServiceStatus, of channel: UUID, by caller: BusCaller)
        async throws(PTChannelError)

    /// Allows other transmissions than until now.
    func setTransmissionMode(
        _ mode: PTTransmissionMode, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError)

    /// Tells who is speaking; nil: nobody any more.
    func setActiveRemoteParticipant(
        _ participant: PTParticipant?, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError)

    /// Lets buttons of accessories begin and end transmissions, or not.
    func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError)

    /// A push came another way than by the relay.
    ///
    /// - Parameter payload: A JSON object, checked.
    func reportPushToTalkMessage(
        _ payload: String, to channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError)

    /// These inhibitor locks are held from now on, in the order they were taken; the lock is given out after this returns.
    func callsChanged(inhibitors: [Inhibitor]) async
}

/// The requests of the bus about accessories. `DaemonAPI` checks the form of the arguments, counts callers, and makes
/// one request for all of them. Accessories are identified by the ids of the last `DaemonAPI.update(accessories:)`, or
/// of one a moment before.
public protocol AccessoryControls: Actor {
    /// Starts the scan for the first caller, or stops it after the last one. Report found devices with
    /// `DaemonAPI.found`.
    ///
    /// - Throws: Why there is no scan.
    func setScanning(_ isOn: Bool) async throws(AccessoryError)

    /// What is known of devices now.
    func discoveredDevices() async -> [DiscoveredDevice]

    /// Adds an accessory. Report progress with `DaemonAPI.addProgress`, and the added accessory with
    /// `DaemonAPI.update(accessories:)` before this returns.
    ///
    /// - Returns: Its id, and notes for the installer.
    func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (id: String, notes: [String])

    /// Whoever adds the device of this address has left the bus: the call above ends, and all of it is taken back.
    func cancelAdding(address: String) async

    /// Forgets an accessory.
    func remove(_ accessory: String) async throws(AccessoryError)

    /// Has a control do something; both are words to check.
    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError)

    /// Has talk controls work by this gesture; nil: by the profile's.
    func setGesture(_ gesture: Gesture?, of accessory: String) async throws(AccessoryError)

    /// Says whether an accessory has to be bonded.
    func setBondedOnly(_ bondedOnly: Bool, of accessory: String) async throws(AccessoryError)

    /// Starts the test of an accessory for the first caller, or stops it after the last one. Report its controls with
    /// `DaemonAPI.control`.
    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError)

    /// Starts a learning session. Report its progress with `DaemonAPI.update(learning:)`. There is one session at a
    /// time.
    func startLearning(_ request: LearningRequest) async throws(AccessoryError)

    /// The session ends without a profile, if it is not over yet.
    func cancelLearning() async

    /// The person has pressed every other key, or there is none. Changes nothing unless that is what the session waits for.
    func proceedLearning() async

    /// The profiles that are known, by id.
    func profiles() async -> [ProfileDescription]
}

/// The requests of the bus about channels nearby. `DaemonAPI` checks the form of the arguments, counts callers, and
/// makes one request for all of them. Channels are identified by the ids of the last `DaemonAPI.update(nearby:)`, or of
/// one a moment before.
public protocol NearbyControls: Actor {
    /// Starts browsing for the first caller, or stops it after the last one. Report the channels with
    /// `DaemonAPI.update(nearby:)`.
    func setBrowsing(_ isOn: Bool) async

    /// Creates a channel that this machine hosts, announces it and makes it the active one.
    ///
    /// - Parameters:
    ///   - name: Nil: made from the machine's name.
    ///   - admission: How somebody gets in.
    /// - Returns: The channel's UUID.
    func createChannel(
        _ name: String?, admission: NearbyAdmission, by caller: BusCaller
    ) async throws(PTChannelError) -> UUID

    /// Makes a channel nearby the active one. That takes up to `PTTBusLimits.nearbyJoinTime` when its creator is asked.
    ///
    /// - Parameter code: Of a locked channel; nil: none.
    /// - Returns: The channel's UUID.
    func joinChannel(_ id: String, code: String?, by caller: BusCaller) async throws(PTChannelError) -> UUID

    /// Gives up the joins of that caller that wait for a creator's answer.
    func cancelJoining(by caller: BusCaller) async

    /// Admits a newcomer to a channel of this machine, or refuses it.
    ///
    /// - Parameter id: `NearbyNewcomerDescription.id`.
    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError)

    /// Ends a channel that this machine hosts.
    func deleteChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError)
}
