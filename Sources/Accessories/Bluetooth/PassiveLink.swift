// A Bluetooth device that is not connected by us: its keys come from the kernel, or it must not or cannot be used.
import BlueZ
import MonotonicTime

/// Knows what BlueZ says of a device, and asks for nothing. Input devices are reconnected by BlueZ itself.
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
        let wasThere = radio == .on && device?.isReachable == true
        switch event {
        case .radio(let state):
            // At a start the devices are told before there is Bluetooth.
            if state == .noService, radio != .noService { device = nil }
            radio = state
        case .device(let facts): device = facts
        case .autoConnect, .completed, .streamClosed, .streamOffered, .ask, .deadline: break
        }
        guard wasThere, radio != .on || device?.isReachable != true else { return [] }
        // The kernel keeps the input device of a HID-over-GATT button, and its keys as they were, when the link is lost.
        switch radio {
        case .on: return [.lost(device == nil ? .removed : .disconnected)]
        case .off: return [.lost(.adapterOff)]
        case .noService: return [.lost(.bluetoothStopped)]
        }
    }
}
