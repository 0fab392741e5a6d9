// What the fleet keeps of one accessory: its link or its local devices, its controls, its light.
import BlueZ
import MonotonicTime

/// One accessory of `AccessoriesStateMachine`.
struct FleetAccessory: Sendable {
    /// How its presses come in.
    enum LinkKind: Equatable, Sendable {
        case gatt
        case stream(StreamKind)
        /// BlueZ is only watched; why it is not used, or nil when its presses come from a local device.
        case passive(problem: String?)
    }

    /// Presses of one accessory in a second beyond this many are no person's, and are ignored.
    static let pressesPerSecondMax = 100

    var configuration: AccessoryConfiguration
    let isAutomatic: Bool
    var kind: LinkKind
    /// What `kind` was chosen from: it is looked at only when that is different.
    var judged: DeviceFacts.Marks?
    var link: any AccessoryLink
    var controls: ControlsStateMachine?
    var battery: Int?
    var light: LightStateMachine
    var tightening = LinkTightening()
    /// The link works, as light and tightening know it.
    var isServed = false
    /// Its local devices that are there.
    var nodes: Set<LocalDeviceID> = []
    /// Which of them hold a key: a key of two devices is down while either is.
    var heldKeys: [UInt16: Set<LocalDeviceID>] = [:]
    /// What is wrong with its local device.
    var localProblem: String?
    /// What was held when it was configured anew, until it is recognised.
    var before: (inputs: [AccessoryProfile.Input], down: Set<Control>, isCertain: Bool)?
    /// Its controls are reported and do nothing.
    var isTested = false
    /// What does not work as well as it could.
    var note: String?
    var reported: AccessoryStatus?
    private var windowBegan = Instant.zero
    private var pressCount = 0
    /// Presses that were ignored because there were too many.
    private(set) var refusedPressCount = 0

    init(
        _ configuration: AccessoryConfiguration, isAutomatic: Bool, kind: LinkKind, link: any AccessoryLink,
        feedback: AccessoryFeedback
    ) {
        self.configuration = configuration
        self.isAutomatic = isAutomatic
        self.kind = kind
        self.link = link
        light = LightStateMachine(feedback)
    }

    var isLocal: Bool { !nodes.isEmpty }

    var nextDeadline: Instant? {
        earliest(
            earliest(link.nextDeadline, controls?.nextDeadline), earliest(light.nextDeadline, tightening.nextDeadline))
    }

    /// Counts a press. False when there are more than a person can make.
    mutating func admitsPress(at now: Instant) -> Bool {
        if now - windowBegan >= .seconds(1) { (windowBegan, pressCount) = (now, 0) }
        pressCount += 1
        guard pressCount > Self.pressesPerSecondMax else { return true }
        refusedPressCount &+= 1
        return false
    }
}

extension DeviceFacts {
    /// What tells a device's family, and whether it may be used.
    struct Marks: Equatable, Sendable {
        var id: DeviceIdentifier
        var name: String?
        var services: Set<BluetoothUUID>
        var isBonded: Bool
    }

    var marks: Marks { Marks(id: id, name: name, services: services, isBonded: isBonded) }
}
