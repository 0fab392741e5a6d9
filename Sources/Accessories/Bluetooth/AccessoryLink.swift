// The life of one Bluetooth accessory's link, whatever carries its presses.
import BlueZ
import MonotonicTime

/// What a link is told.
enum AccessoryLinkEvent: Sendable {
    case radio(RadioState)
    /// The device as it is now; nil when BlueZ does not know it (any more).
    case device(DeviceFacts?)
    /// Whether BlueZ reconnects devices with registered services by itself.
    case autoConnect(isArmed: Bool)
    case completed(BluetoothCommand, BluetoothFailure?)
    /// The stream that was opened has ended.
    case streamClosed(StreamKind)
    /// The device has connected its stream by itself: `openStream` takes it.
    case streamOffered(StreamKind)
    /// It is its turn to be asked for, though BlueZ should connect it by itself.
    case ask
    case deadline
}

/// What a link asks for.
enum AccessoryLinkAction: Equatable, Sendable {
    case command(BluetoothCommand)
    /// The profile is certain; values of these characteristics belong to its inputs. A stream's bytes are its first input's.
    case recognised(AccessoryProfile, inputs: [CharacteristicIdentifier: Int])
    /// Values come from now on; whether the link may be older than that.
    case heard(isKept: Bool)
    /// Values, if any came, will not come any more: everything held is released.
    case lost(AccessoryRelease)
}

/// The rules of one accessory's link: found, connected, recognised, heard, lost, and back again. What it does with the values is
/// `ControlsStateMachine`'s.
protocol AccessoryLink: Sendable {
    var device: DeviceFacts? { get }
    /// The profile, once it is certain.
    var profile: AccessoryProfile? { get }
    /// What keeps it from working and what to do.
    var problem: String? { get }
    /// Presses arrive.
    var isReady: Bool { get }
    /// Whether a value that comes now is news, rather than something read or remembered.
    var hearsNews: Bool { get }
    /// A scan is wanted: BlueZ does not know the device.
    var wantsDiscovery: Bool { get }
    /// BlueZ has been asked to connect it and has not answered.
    var isConnecting: Bool { get }
    /// From when on it may be asked for, though BlueZ should connect it by itself; nil when there is no reason to.
    var asksAfter: Instant? { get }
    /// The services BlueZ should reconnect for by itself.
    var servicesToRegister: [BluetoothUUID] { get }
    /// When `deadline` must be handled.
    var nextDeadline: Instant? { get }

    mutating func handle(_ event: AccessoryLinkEvent, at now: Instant) -> [AccessoryLinkAction]
}

extension AccessoryLink {
    var asksAfter: Instant? { nil }
}

/// A Bluetooth device that is not connected by us: its keys come from the kernel, or it must not or cannot be used.
///
/// It knows what BlueZ says of the device, and asks for nothing. Input devices are reconnected by BlueZ itself.
struct PassiveLink: AccessoryLink {
    private(set) var device: DeviceFacts?
    private(set) var problem: String?
    private var radio = RadioState.noService

    let profile: AccessoryProfile? = nil
    let isReady = false
    let hearsNews = false
    let wantsDiscovery = false
    let isConnecting = false
    let servicesToRegister: [BluetoothUUID] = []
    let nextDeadline: Instant? = nil

    /// - Parameter problem: Why it is not used; nil when its presses come another way.
    init(problem: String? = nil) { self.problem = problem }

    mutating func handle(_ event: AccessoryLinkEvent, at now: Instant) -> [AccessoryLinkAction] {
        switch event {
        case .radio(let state):
            // At a start the devices are told before there is Bluetooth.
            if state == .noService, radio != .noService { device = nil }
            radio = state
        case .device(let facts): device = facts
        case .autoConnect, .completed, .streamClosed, .streamOffered, .ask, .deadline: break
        }
        return []
    }
}
