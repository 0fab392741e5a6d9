// What comes in from Bluetooth and the machine's devices, for those who watch it besides the rules.
import MonotonicTime

/// What `AccessoryService` hands on to setup.
package enum AccessoryReport: Sendable {
    case bluetooth(BluetoothReport)
    case local(LocalDeviceReport)
}
